// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"runtime"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
	"golang.org/x/sys/unix"
)

func tapFlags(t *testing.T, tap *Tap) uint16 {
	t.Helper()
	req, err := unix.NewIfreq(tap.Name)
	if err == nil {
		err = unix.IoctlIfreq(int(tap.File.Fd()), unix.TUNGETIFF, req)
	}
	if err != nil {
		t.Fatal(err)
	}
	return req.Uint16()
}

// threaded returns the attribute's value in this network namespace.
func threaded(t *testing.T, dev string) string {
	t.Helper()
	sys, err := ownSysfs()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(sys)
	s, err := readThreaded(sys, dev)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func isThreaded(t *testing.T, tap *Tap) {
	t.Helper()
	if f := tapFlags(t, tap); f&unix.IFF_NAPI == 0 || f&unix.IFF_VNET_HDR != 0 || tap.VnetHdr || threaded(t, tap.Name) != threadOn {
		t.Errorf("flags %#x, %+v, threaded %s", f, tap, threaded(t, tap.Name))
	}
}

// onThread runs f on a thread that ends with f.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

func TestTapThreadedCreated(t *testing.T) {
	kit.Need(t)
	var undos []Undo
	tap, err := OpenTap("lt20", TapOptions{Plain: true}, func(u Undo) error { undos = append(undos, u); return nil })
	if err != nil {
		t.Fatal(err)
	}
	isThreaded(t, tap)
	if len(undos) != 1 || undos[0].Op != OpDeleteLink || undos[0].Ifindex != tap.Ifindex {
		t.Errorf("undos %v", undos)
	}
	tap.File.Close()
	if st, err := LookTap("lt20"); err != nil || st.Exists {
		t.Errorf("it outlived its descriptor: %+v, %v", st, err)
	}
}

func TestTapThreadedUndo(t *testing.T) {
	kit.Need(t)
	kit.Host.Tap(t, "lt21")
	var undos []Undo
	open := func() *Tap {
		tap, err := OpenTap("lt21", TapOptions{Plain: true}, func(u Undo) error { undos = append(undos, u); return nil })
		if err != nil {
			t.Fatal(err)
		}
		isThreaded(t, tap)
		return tap
	}
	tap := open()
	if len(undos) != 1 || undos[0].Op != OpThreaded || undos[0].Ifindex != tap.Ifindex || undos[0].Old != "0" {
		t.Fatalf("undos %v", undos)
	}
	// Another process has the device, so it stays unchanged.
	if err := undos[0].Apply(t.Context()); err != nil || threaded(t, "lt21") != threadOn {
		t.Errorf("%v, threaded %s", err, threaded(t, "lt21"))
	}
	tap.File.Close()
	for range 2 {
		if err := undos[0].Apply(t.Context()); err != nil || threaded(t, "lt21") != "0" {
			t.Errorf("%v, threaded %s", err, threaded(t, "lt21"))
		}
	}
	// If the attribute was set before, there is nothing to undo.
	tap = open()
	tap.File.Close()
	undos = nil
	open().File.Close()
	if len(undos) != 0 {
		t.Errorf("undos %v", undos)
	}
	undo := Undo{Op: OpThreaded, Name: "lt22", Ifindex: 1 << 20, Netns: netnsID(), Old: "0", New: threadOn}
	if err := undo.Apply(t.Context()); err != nil {
		t.Errorf("of a device that is gone: %v", err)
	}
	if st, err := LookTap("lt22"); err != nil || st.Exists {
		t.Errorf("the undo made a tap: %+v, %v", st, err)
	}
}

func TestTapThreadedNot(t *testing.T) {
	kit.Need(t)
	tap, err := OpenTap("lt23", TapOptions{}, drop)
	if err != nil {
		t.Fatal(err)
	}
	if f := tapFlags(t, tap); f&unix.IFF_NAPI != 0 || f&unix.IFF_VNET_HDR == 0 || !tap.VnetHdr {
		t.Errorf("with offloads: flags %#x, %+v", f, tap)
	}
	tap.File.Close()
	if tap, err = OpenTap("lt24", TapOptions{Plain: true, Queue: true}, drop); err != nil {
		t.Fatal(err)
	}
	if f := tapFlags(t, tap); f&unix.IFF_NAPI != 0 || f&unix.IFF_VNET_HDR == 0 || !tap.VnetHdr {
		t.Errorf("a queue: flags %#x, %+v", f, tap)
	}
	tap.File.Close()

	// A user who may not set the attribute gets a tap without IFF_NAPI,
	// whether new or existing.
	kit.Host.Tap(t, "lt25")
	onThread(func() {
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&hdr, &data[0]); err != nil {
			t.Error(err)
			return
		}
		data[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
		if err := unix.Capset(&hdr, &data[0]); err != nil {
			t.Error(err)
			return
		}
		for _, dev := range []string{"lt25", "lt26"} {
			undos := 0
			tap, err := OpenTap(dev, TapOptions{Plain: true}, func(Undo) error { undos++; return nil })
			if err != nil {
				t.Error(err)
				return
			}
			if f := tapFlags(t, tap); f&(unix.IFF_NAPI|unix.IFF_VNET_HDR) != 0 || tap.VnetHdr || tap.Created != (undos == 1) {
				t.Errorf("%s without the right: flags %#x, %+v, %d undos", dev, f, tap, undos)
			}
			tap.File.Close()
		}
	})

	// A read-only /sys, or one of another namespace, does not matter.
	onThread(func() {
		err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")
		}
		if err == nil {
			err = unix.Mount("", "/sys", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
		}
		if err != nil {
			t.Error(err)
			return
		}
		tap, err := OpenTap("lt27", TapOptions{Plain: true}, drop)
		if err != nil {
			t.Error(err)
			return
		}
		if f := tapFlags(t, tap); f&unix.IFF_NAPI == 0 {
			t.Errorf("with /sys read-only: flags %#x", f)
		}
		tap.File.Close()
	})
}
