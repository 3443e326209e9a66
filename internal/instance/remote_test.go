// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"os"
	"path/filepath"
	"testing"
)

// An instance on another machine is listed and opened like a local one. Its
// directory is on that machine, and its files are in a local folder.
func TestAppear(t *testing.T) {
	p := Place{Device: "adb:1234", Root: t.TempDir()}
	info := Info{State: State{Name: "web", PID: 7}, Device: p.Device, Dir: "/data/run/web", Running: true}
	for range 2 { // the second call updates the first one's files
		info.TargetPID++
		dir, err := Publish(p.Root, info)
		if err != nil || dir != filepath.Join(p.Root, "web") {
			t.Fatal(dir, err)
		}
	}
	if _, err := Publish(p.Root, Info{State: State{Name: "old"}, Dir: "/data/run/old"}); err != nil {
		t.Fatal(err)
	}
	all, err := p.List()
	if err != nil || len(all) != 2 || all[0].Name != "old" || all[0].Running || !all[1].Running {
		t.Fatalf("%+v, %v", all, err)
	}
	got, err := p.Open("")
	if err != nil || got.Dir != info.Dir || got.Device != "adb:1234" || got.TargetPID != 2 || got.Socket() != filepath.Join(p.Root, "web", SocketFile) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := Unpublish(p.Root, "web"); err != nil {
		t.Error(err)
	}
	if _, err := p.Open("web"); err == nil || err.Error() != `no instance "web" is running (looked on adb:1234)` {
		t.Error(err)
	}
	if left, err := os.ReadDir(p.Root); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := Publish(p.Root, Info{State: State{Name: "../x"}}); err == nil {
		t.Error("a device that names an instance ../x is believed")
	}
}
