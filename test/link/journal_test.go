// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// TestFinding12ForeignJournal checks that cleanup does not carry out a journal that
// another user wrote.
func TestFinding12ForeignJournal(t *testing.T) {
	w := newWire(t)
	w.here.Tap(t, "prey")
	var ifi *net.Interface
	var netns string
	w.here.Do(t, func() (err error) {
		if netns, err = os.Readlink("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		ifi, err = net.InterfaceByName("prey")
		return err
	})
	journal := fmt.Sprintf(`{"op":"delete-link","name":"prey","ifindex":%d,"netns":"%s"}`+"\n", ifi.Index, netns)
	was := w.state()
	cleanup := func(dir string) *exec.Cmd {
		return w.here.Command(kit.Bin("lklrun"), "cleanup", "--dir", dir)
	}
	// fill creates a run directory below base and lets change tamper with it.
	fill := func(t *testing.T, base string, uid int) string {
		t.Helper()
		dir := filepath.Join(base, "web")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"lock": "", "journal": journal} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			kit.Host.Run(t, "chown", fmt.Sprint(uid), filepath.Join(dir, name))
		}
		kit.Host.Run(t, "chown", fmt.Sprint(uid), dir)
		return dir
	}
	for name, make := range map[string]func(t *testing.T) (dir, why string){
		"another user's": func(t *testing.T) (string, string) {
			dir := fill(t, kit.Dir(t), kit.OtherUID)
			return dir, fmt.Sprintf("%s belongs to uid %d; run `lklrun cleanup` as that user", dir, kit.OtherUID)
		},
		"another user's journal": func(t *testing.T) (string, string) {
			dir := fill(t, kit.Dir(t), 0)
			kit.Host.Run(t, "chown", fmt.Sprint(kit.OtherUID), dir+"/journal")
			return dir, fmt.Sprintf("%s/journal belongs to uid %d", dir, kit.OtherUID)
		},
		"a link to it": func(t *testing.T) (string, string) {
			base := kit.Dir(t)
			dir := fill(t, base, 0)
			kit.Host.Run(t, "mv", dir+"/journal", base+"/journal")
			kit.Host.Run(t, "ln", "-s", base+"/journal", dir+"/journal")
			return dir, "/journal is a symbolic link|not a run directory"
		},
		"in another user's": func(t *testing.T) (string, string) {
			base := kit.Dir(t)
			dir := fill(t, base, 0)
			kit.Host.Run(t, "chown", fmt.Sprint(kit.OtherUID), base)
			return dir, fmt.Sprintf("%s belongs to uid %d, who could replace its files", base, kit.OtherUID)
		},
		"in one that is everybody's": func(t *testing.T) (string, string) {
			base := kit.Dir(t)
			dir := fill(t, base, 0)
			kit.Host.Run(t, "chmod", "777", base)
			return dir, base + " is writable by other users"
		},
		"by a link of another user's": func(t *testing.T) (string, string) {
			base := kit.Dir(t)
			dir := fill(t, filepath.Join(base, "below"), kit.OtherUID)
			kit.Host.Run(t, "ln", "-s", dir, base+"/link")
			return base + "/link", "belongs to uid"
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, why := make(t)
			kit.OneLine(t, kit.Run(t, kit.Limit, cleanup(dir)), 2, why)
			if _, err := os.Lstat(dir + "/journal"); err != nil {
				t.Error(err)
			}
			if now := w.state(); now != was {
				t.Errorf("the host was\n%s\nand is\n%s", was, now)
			}
		})
	}
	t.Run("one's own", func(t *testing.T) {
		dir := fill(t, kit.Dir(t), 0)
		kit.OK(t, kit.Limit, cleanup(dir))
		if now := w.state(); now == was || strings.Contains(now, "prey") {
			t.Errorf("the device is still there: %s", now)
		}
		if _, err := os.Lstat(dir); err == nil {
			t.Error("the directory is still there")
		}
	})
}

// TestFinding12OwnRun checks that lklhost cleans up for a killed lklrun wherever the run
// directory is. lklhost holds the run's lock, which proves that the directory is the
// right one.
func TestFinding12OwnRun(t *testing.T) {
	w := newWire(t)
	layNAT(w)
	was := w.state()
	base := kit.Dir(t)
	if err := os.Chown(base, kit.OtherUID, kit.OtherUID); err != nil {
		t.Fatal(err)
	}
	w.as = []string{"env", "LKLRUN_RUN_DIR=" + base + "/run", kit.Bin("lklrun")}
	d := w.start("supervise", w.flag)
	d.ping()
	d.Proc.Signal(unix.SIGKILL)
	d.Proc.Wait(kit.Limit)
	if !kit.Within(kit.Limit, func() bool { return w.state() == was }) {
		w.same(was)
	}
	kit.WaitFor(t, "the end of the run directory", kit.Limit, func() bool { _, err := os.Lstat(base + "/run"); return err != nil })
}
