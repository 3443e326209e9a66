// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"os"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/fakedevice"
)

// TestDeviceRefused checks errors that the user can fix. Each must produce one line and
// status 2, and leave nothing on the phone.
func TestDeviceRefused(t *testing.T) {
	d := newDesk(t)
	refused := func(t *testing.T, device string, args []string, words ...string) {
		t.Helper()
		if args == nil {
			args = []string{"--", "/system/bin/true"}
		}
		r := kit.Run(t, deviceLimit, d.run(device, args...))
		refusal(t, r, 2, append(words, device)...)
		t.Log(strings.TrimSpace(r.Stderr))
	}
	empty := func(t *testing.T, p *fakedevice.Phone) {
		t.Helper()
		if left, err := os.ReadDir(p.Path("/data/local/tmp")); err != nil || len(left) != 0 {
			t.Errorf("left on the phone: %v, %v", left, err)
		}
		if q := p.Processes(); len(q) != 0 {
			t.Errorf("runs on the phone: %q", q)
		}
	}
	t.Run("no device", func(t *testing.T) {
		refused(t, "adb", nil, "no device", "USB debugging")
		refused(t, "all", nil, "no device")
		refused(t, "adb:nobody", nil, "no device nobody", "adb devices")
	})
	t.Run("full storage", func(t *testing.T) {
		p := fakedevice.New(t, fakedevice.Options{Arch: "amd64", Storage: 4 << 20})
		d.adb.Connect(p, "device")
		refused(t, "adb", nil, "storage is full", "free some")
		empty(t, p)
		d.adb.Disconnect(p)
	})
	t.Run("wrong ABI", func(t *testing.T) {
		p := fakedevice.New(t, fakedevice.Options{Arch: "386"})
		d.adb.Connect(p, "device")
		refused(t, "adb", nil, "i686", "has no bundle", "arm64")
		empty(t, p)
		d.adb.Disconnect(p)
	})
	t.Run("no root", func(t *testing.T) {
		p := fakedevice.New(t, fakedevice.Options{Arch: "amd64", Su: "none"})
		d.adb.Connect(p, "device")
		refused(t, "adb", []string{"--if", "raw:wlan0", "--", "/system/bin/true"}, "root", "uid 2000", "su")
		empty(t, p)
		d.adb.Disconnect(p)
	})
	t.Run("unauthorized", func(t *testing.T) {
		p := fakedevice.New(t, fakedevice.Options{Arch: "amd64", Unauthorized: true})
		d.adb.Connect(p, "unauthorized")
		refused(t, "adb", nil, "not authorized", "screen")
		d.adb.Disconnect(p)
	})
	t.Run("offline", func(t *testing.T) {
		p := fakedevice.New(t, fakedevice.Options{Arch: "amd64"})
		p.Hang()
		d.adb.Connect(p, "offline")
		refused(t, "adb", nil, "offline", "adb reconnect")
		p.Wake()
		d.adb.Disconnect(p)
	})
}

// TestDevices runs one command on two phones at once.
func TestDevices(t *testing.T) {
	d := newDesk(t)
	var phones []*fakedevice.Phone
	var names []string
	for _, n := range []string{"0", "3"} {
		p := fakedevice.New(t, fakedevice.Options{Arch: "amd64", Debian: true, Props: map[string]string{"test.number": n}})
		d.adb.Connect(p, "device")
		phones, names = append(phones, p), append(names, "adb:"+p.Serial)
	}
	command := []string{"--", phoneSh, "-c", "n=$(getprop test.number); read line; echo $n $line; echo lost >&2; exit $n"}
	for _, device := range []string{"all", strings.Join(names, ",")} {
		cmd := d.run(device, command...)
		cmd.Stdin = strings.NewReader("given\n")
		r := kit.Run(t, deviceLimit, cmd)
		if r.Status != 3 {
			t.Errorf("--device %s: %v, want status 3", device, r)
		}
		for n, number := range []string{"0", "3"} {
			if want := "[" + names[n] + "] " + number + " given\n"; !strings.Contains(r.Stdout, want) {
				t.Errorf("--device %s: %v, want %q", device, r, want)
			}
			if want := "[" + names[n] + "] lost\n"; !strings.Contains(r.Stderr, want) {
				t.Errorf("--device %s: %v, want %q", device, r, want)
			}
		}
	}
	for _, p := range phones {
		kit.WaitFor(t, "the end on "+p.Serial, kit.Limit, func() bool { return len(p.Processes()) == 0 })
	}
}
