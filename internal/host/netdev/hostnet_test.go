// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { kit.Main(m, nil) }

func drop(Undo) error { return nil }

func TestTapCreated(t *testing.T) {
	kit.Need(t)
	var undo Undo
	tap, err := OpenTap("lt0", TapOptions{MTU: 4000}, func(u Undo) error {
		if _, err := net.InterfaceByName("lt0"); err == nil {
			t.Error("the device was there before its undo was written")
		}
		undo = u
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ifi, err := net.InterfaceByName("lt0")
	if err != nil {
		t.Fatal(err)
	}
	if ifi.MTU != 4000 || ifi.Flags&net.FlagUp == 0 || !tap.Created || ifi.Index != undo.Ifindex || tap.Ifindex != ifi.Index {
		t.Errorf("device %+v, tap %+v, undo %+v", ifi, tap, undo)
	}
	st, err := CheckTap("lt0", false)
	want := fmt.Sprintf("tap lt0 is in use by %s (pid %d)", comm(t), os.Getpid())
	if err == nil || err.Error() != want {
		t.Errorf("check of a tap in use: %+v, %v; want %s", st, err, want)
	}
	if _, err := OpenTap("lt0", TapOptions{}, drop); err == nil || err.Error() != want {
		t.Errorf("second attach: %v", err)
	}

	// It is no error if the device is deleted while open, or already gone.
	// Another device that has the name by now is not changed.
	if err := undo.Apply(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := net.InterfaceByName("lt0"); err == nil {
		t.Error("lt0 is still there")
	}
	tap.File.Close()
	kit.Host.Tap(t, "lt0")
	if err := undo.Apply(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := net.InterfaceByName("lt0"); err != nil {
		t.Errorf("somebody else's lt0 was deleted: %v", err)
	}
	undo.Netns = "net:[1]"
	if err := undo.Apply(context.Background()); err == nil {
		t.Error("an undo for another namespace was carried out here")
	}
}

func TestUndoUnknown(t *testing.T) {
	u := Undo{Op: "make-coffee", Name: "x", Netns: netnsID()}
	if err := u.Apply(t.Context()); err == nil || err.Error() != `unknown undo operation "make-coffee"` {
		t.Errorf("%v", err)
	}
}

func TestTapVanishes(t *testing.T) {
	kit.Need(t)
	tap, err := OpenTap("lt1", TapOptions{}, drop)
	if err != nil {
		t.Fatal(err)
	}
	tap.File.Close()
	if _, err := net.InterfaceByName("lt1"); err == nil {
		t.Error("lt1 outlived its descriptor")
	}
}

// The users of the queues share the device, which exists until the last user
// closes it.
func TestTapQueues(t *testing.T) {
	kit.Need(t)
	undos := func(Undo) error { t.Error("an undo for a device that others may have"); return nil }
	first, err := OpenTap("lt7", TapOptions{MTU: 4000, Queue: true}, undos)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := CheckTap("lt7", true); err != nil {
		t.Error(err)
	}
	second, err := OpenTap("lt7", TapOptions{MTU: 1400, Queue: true}, undos)
	if err != nil {
		t.Fatal(err)
	}
	ifi, err := net.InterfaceByName("lt7")
	if err != nil || ifi.MTU != 4000 || !first.Created || second.Created || first.Ifindex != ifi.Index || second.Ifindex != ifi.Index {
		t.Errorf("%+v, %+v of %+v, %v", first, second, ifi, err)
	}
	if _, err := OpenTap("lt7", TapOptions{}, undos); err == nil || !strings.Contains(err.Error(), "add multiqueue") {
		t.Errorf("alone: %v", err)
	}
	first.File.Close()
	if _, err := net.InterfaceByName("lt7"); err != nil {
		t.Error("lt7 went with the first of its queues")
	}
	second.File.Close()
	if _, err := net.InterfaceByName("lt7"); err == nil {
		t.Error("lt7 outlived its queues")
	}
	kit.Host.Tap(t, "lt8")
	if _, err := OpenTap("lt8", TapOptions{Queue: true}, undos); err == nil || !strings.Contains(err.Error(), "a tap without multi_queue") {
		t.Errorf("a tap without queues: %v", err)
	}
}

func TestTapPersistent(t *testing.T) {
	kit.Need(t)
	kit.Host.Tap(t, "lt2")
	for range 2 { // attach, detach and attach again
		if st, err := CheckTap("lt2", false); err != nil || !st.Exists || !st.Up {
			t.Errorf("%+v, %v", st, err)
		}
		tap, err := OpenTap("lt2", TapOptions{MTU: 9000}, func(Undo) error { t.Error("an undo for a tap that was there"); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if tap.Created || !tap.Up {
			t.Errorf("%+v", tap)
		}
		tap.File.Close()
	}
	ifi, err := net.InterfaceByName("lt2")
	if err != nil || ifi.MTU != 1500 {
		t.Errorf("a persistent tap was changed: %+v, %v", ifi, err)
	}
}

func TestTapRefused(t *testing.T) {
	kit.Need(t)
	kit.Host.Run(t, "ip", "link", "add", "lt3", "type", "bridge")
	defer kit.Host.Run(t, "ip", "link", "del", "lt3")
	if _, err := CheckTap("lt3", false); err == nil || !strings.Contains(err.Error(), "bridge device") {
		t.Errorf("check of a bridge: %v", err)
	}
	if _, err := OpenTap("lt3", TapOptions{}, drop); err == nil || !strings.Contains(err.Error(), "different flags") {
		t.Errorf("attach to a bridge: %v", err)
	}
	if _, err := CheckTap("lo", false); err == nil || !strings.Contains(err.Error(), "lo is not a tap but a different kind of device") {
		t.Errorf("check of lo: %v", err)
	}
	kit.Host.Run(t, "ip", "tuntap", "add", "lt4", "mode", "tun")
	defer kit.Host.Run(t, "ip", "link", "del", "lt4")
	if _, err := CheckTap("lt4", false); err == nil || !strings.Contains(err.Error(), "tun device") {
		t.Errorf("check of a tun: %v", err)
	}
	if _, err := OpenTap("lt5", TapOptions{}, func(Undo) error { return unix.ENOSPC }); err == nil {
		t.Error("a tap was made though its undo could not be written")
	}
	if _, err := net.InterfaceByName("lt5"); err == nil {
		t.Error("lt5 exists")
	}
}

func TestFD(t *testing.T) {
	pair := func(typ int) [2]int {
		p, err := unix.Socketpair(unix.AF_UNIX, typ|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(p[0]); unix.Close(p[1]) })
		return p
	}
	inherited := func(fd int) int { // makes it look inherited
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	if _, err := CheckFD(pair(unix.SOCK_DGRAM)[0]); err == nil || !strings.Contains(err.Error(), "is not open") {
		t.Errorf("one of this process's own: %v", err)
	}
	for typ, want := range map[int]string{
		unix.SOCK_DGRAM: "", unix.SOCK_SEQPACKET: "",
		unix.SOCK_STREAM: "is a stream socket, which does not preserve frame boundaries",
	} {
		_, err := CheckFD(inherited(pair(typ)[0]))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("type %d: %v", typ, err)
		}
	}
	alone, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(alone)
	if _, err := CheckFD(inherited(alone)); err == nil || !strings.Contains(err.Error(), "an unconnected socket") {
		t.Errorf("unconnected: %v", err)
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if _, err := CheckFD(inherited(int(null.Fd()))); err == nil || !strings.Contains(err.Error(), "neither") {
		t.Errorf("/dev/null: %v", err)
	}
	if _, err := CheckFD(1 << 20); err == nil || !strings.Contains(err.Error(), "is not open") {
		t.Errorf("not open: %v", err)
	}

	p := pair(unix.SOCK_SEQPACKET)
	f, err := OpenFD(p[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.File.Close()
	if _, err := unix.Write(p[1], []byte("frame")); err != nil {
		t.Fatal(err)
	}
	var b [16]byte
	if n, err := f.File.Read(b[:]); err != nil || string(b[:n]) != "frame" || f.Kind != FDSocket {
		t.Errorf("%q, %v", b[:n], err)
	}
}

func TestFDTap(t *testing.T) {
	kit.Need(t)
	tap, err := OpenTap("lt6", TapOptions{}, drop)
	if err != nil {
		t.Fatal(err)
	}
	defer tap.File.Close()
	f, err := OpenFD(int(tap.File.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer f.File.Close()
	if f.Kind != FDTap || !f.VnetHdr {
		t.Errorf("%+v", f)
	}
}

func comm(t *testing.T) string {
	b, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
