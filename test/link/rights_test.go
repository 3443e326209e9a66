// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// tunForAll makes the tests' /dev/net/tun accessible to every user, as udev does.
func tunForAll(t *testing.T) {
	t.Helper()
	node := filepath.Join(kit.Dir(t), "tun")
	if err := unix.Mknod(node, unix.S_IFCHR, int(unix.Mkdev(10, 200))); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(node, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(node, "/dev/net/tun", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount("/dev/net/tun", 0); err != nil {
			t.Error(err)
		}
	})
}

// withRights runs a test for each caller and each engine.
func withRights(t *testing.T, test func(t *testing.T, r kit.Rights, bin, engine string)) {
	kit.Need(t, "setpriv")
	tunForAll(t)
	bin := kit.PublicBin(t)
	for _, r := range kit.AllRights {
		for _, engine := range r.Engines {
			t.Run(r.Who+"/"+engine, func(t *testing.T) { test(t, r, bin, engine) })
		}
	}
}

// public copies a file to a place where every user can read it, and returns the path of
// the copy.
func public(t *testing.T, file string) string {
	t.Helper()
	copied := filepath.Join(kit.Dir(t), filepath.Base(file))
	kit.Host.Run(t, "install", "-m", "644", file, copied)
	return copied
}

// TestTwoCapabilities checks that two capabilities are enough to create a tap, and to
// remove it whichever process is killed. The target has neither capability, and cannot
// use lklrun's rights to create a tap.
func TestTwoCapabilities(t *testing.T) {
	withRights(t, func(t *testing.T, r kit.Rights, bin, engine string) {
		s := kit.NewSite(t)
		s.Web(kit.Nginx{})
		lklrun := func(args ...string) *exec.Cmd {
			return r.Command(append([]string{bin + "/lklrun", "-q", "--engine", engine}, args...)...)
		}
		start := func(t *testing.T) *kit.Talker {
			k := s.TalkBy(lklrun, "--if", s.TapIf(), "--if", "tap:new0,ip=10.75.0.1/24")
			k.Connect("c", kit.ServerAddr, 80)
			if names := kit.Host.Run(t, "ip", "-br", "link"); !strings.Contains(names, "new0") {
				t.Fatalf("there is no new0: %s", names)
			}
			return k
		}
		process := func(t *testing.T, k *kit.Talker, key string) int {
			return kit.ProcessIn(t, kit.OK(t, kit.Limit, r.Command(bin+"/lklctl", "-o", "json", "list")), k, key)
		}
		before := kit.Take(t, s.Server)
		k := start(t)
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process(t, k, "target_pid")))
		if err != nil || !kit.NoRights.Match(status) {
			t.Errorf("the target's rights (%v):\n%s", err, status)
		}
		if engine == "supervise" {
			if got := kit.OK(t, kit.Limit, r.Command(bin+"/lklctl", "-n", k.Name, "exec", "cat", "/proc/self/status")); !kit.NoRights.MatchString(got) {
				t.Errorf("the rights of a program of lklctl exec:\n%s", got)
			}
		}
		// The target calls TUNSETIFF for another tap. With supervise, it gets one of the
		// stack. SIOCSIFFLAGS on a descriptor of the host would need the same capability.
		got := k.Say(`globals().update(tap=open("/dev/net/tun", "r+b", 0)) or __import__("fcntl").ioctl(tap, 0x400454ca, __import__("struct").pack("16sH22x", b"own0", 0x1002))`)
		if strings.HasPrefix(got, "PermissionError") != (engine == "preload") || strings.Contains(kit.Host.Run(t, "ip", "-br", "link"), "own0") {
			t.Errorf("the target makes a tap: %s", got)
		}
		// Root cannot create a user namespace without CAP_SETFCAP; lines explain the
		// consequences. With preload, the log has the line about the mounts.
		want := map[string]int{"user": 0, "root": 2}[r.Who]
		if want > 0 && engine == "preload" {
			want = 1
		}
		if res := k.End(); res.Status != 0 || len(kit.Lines(res.Stderr)) != want {
			t.Errorf("the run: %v", res)
		}
		before.Same()
		for _, who := range []string{"pid", "host_pid"} {
			k := start(t)
			if err := unix.Kill(process(t, k, who), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			k.Proc.Wait(kit.Limit)
			before.Settles(kit.Limit)
		}
	})
}

// TestTwoCapabilitiesDrivers checks that the two capabilities are enough for every kind
// of interface that changes the host, or that requires more than a user's rights.
// Whichever process is killed, the changes are undone.
func TestTwoCapabilitiesDrivers(t *testing.T) {
	withRights(t, func(t *testing.T, r kit.Rights, bin, engine string) {
		for _, d := range drivers {
			if !slices.Contains([]string{"tap", "tap, nat", "tap, bridged by the run", "macvtap", "raw", "rawip"}, d.name) {
				continue
			}
			t.Run(d.name, func(t *testing.T) {
				w := newWire(t)
				d.lay(w)
				w.as = r.Command(bin + "/lklrun").Args
				was := w.state()
				for _, kill := range []string{"", "pid", "host_pid"} {
					d := w.start(engine, w.flag)
					d.ping()
					if kill == "" {
						d.tcpOut()
						d.ends()
						w.same(was)
						continue
					}
					list := w.here.Run(w, r.Command(bin+"/lklctl", "-o", "json", "list").Args...)
					if err := unix.Kill(kit.ProcessIn(t, list, d.Talker, kill), unix.SIGKILL); err != nil {
						t.Fatal(err)
					}
					d.Proc.Wait(kit.Limit)
					if !kit.Within(kit.Limit, func() bool { return w.state() == was }) {
						w.same(was)
					}
				}
			})
		}
	})
}

// TestTwoCapabilitiesGuard checks that the two capabilities are also enough for an
// address that the stack shares with the host. lklrun reserves ports and creates rules on
// the host, and removes both at the end.
func TestTwoCapabilitiesGuard(t *testing.T) {
	withRights(t, func(t *testing.T, r kit.Rights, bin, engine string) {
		for typ, guard := range map[string]string{"raw": "nft", "rawip": "iptables"} {
			t.Run(typ+", "+guard, func(t *testing.T) {
				s := newShare(t, typ)
				s.as = r.Command(bin + "/lklrun").Args
				s.peer.EchoTCP(t, peerAddr+":7")
				s.peer.EchoTCP(t, "["+peerAddr6+"]:7")
				was := s.rules()
				for _, kill := range []string{"", "pid", "host_pid"} {
					k := s.run("--engine", engine, "--rst-guard", guard)
					for _, addr := range []string{peerAddr, peerAddr6} {
						if got := k.Say("crowd(%q, 7, 20)", addr); !strings.HasPrefix(got, "'20, ports ") {
							t.Errorf("connections to %s: %s", addr, got)
						}
					}
					if s.rules() == was {
						t.Error("nothing is changed on the host")
					}
					if kill == "" {
						if res := k.End(); res.Status != 0 {
							t.Errorf("the run: %v", res)
						}
					} else {
						list := s.here.Run(t, r.Command(bin+"/lklctl", "-o", "json", "list").Args...)
						if err := unix.Kill(kit.ProcessIn(t, list, k, kill), unix.SIGKILL); err != nil {
							t.Fatal(err)
						}
						k.Proc.Wait(kit.Limit)
					}
					if !kit.Within(kit.Limit, func() bool { return s.rules() == was }) {
						t.Errorf("the host had\n%s\nand has\n%s", was, s.rules())
					}
				}
			})
		}
	})
}
