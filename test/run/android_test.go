// SPDX-License-Identifier: Apache-2.0

//go:build androidroot

package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// androidEnv names a directory with the root of an Android system for this CPU. It contains
// system, and in apex/com.android.runtime the loader and the C library. The directories dev,
// proc, sys and data/local/tmp may be empty.
const androidEnv = "LKLRUN_TEST_ANDROID"

// shellUID is the user of `adb shell`.
const shellUID = 2000

// androidEngines are the engines that run the system's programs.
var androidEngines = []string{"supervise", "preload", "trace"}

// An android is an Android system as the root of all mounts, as on a phone. The bundle for
// devices is in /data/local/tmp/lklrun.
type android struct {
	root string
	in   *kit.Netns // the network namespace of its programs
}

// newAndroid mounts the system that androidEnv names.
func newAndroid(t *testing.T, in *kit.Netns) *android {
	t.Helper()
	system := os.Getenv(androidEnv)
	if system == "" {
		t.Skipf("%s names no root of an Android system", androidEnv)
	}
	bundle := filepath.Join(kit.Root(), "build", "cross", runtime.GOARCH)
	kit.Need(t, filepath.Join(bundle, "lklrun")) // make cross
	a := &android{filepath.Join(kit.Dir(t), "android"), in}
	tmp := filepath.Join(a.root, "data", "local", "tmp")
	kit.Must(t, os.Mkdir(a.root, 0o755), unix.Mount(system, a.root, "", unix.MS_BIND|unix.MS_REC, ""))
	t.Cleanup(func() { kit.Must(t, unix.Unmount(a.root, unix.MNT_DETACH)) })
	for _, dir := range []string{"/dev", "/proc", "/sys"} {
		kit.Must(t, unix.Mount(dir, a.root+dir, "", unix.MS_BIND|unix.MS_REC, ""))
	}
	kit.Must(t, unix.Mount("tmpfs", tmp, "tmpfs", 0, "mode=1777"))
	kit.Host.Run(t, "cp", "-r", bundle, filepath.Join(tmp, "lklrun"))
	kit.Host.Run(t, "chmod", "-R", "go+rX", tmp+"/lklrun")
	return a
}

// start starts lklrun in the system as a user.
func (a *android) start(t *testing.T, uid uint32, stdin io.Reader, args ...string) *kit.Proc {
	t.Helper()
	cmd := exec.Command("/data/local/tmp/lklrun/lklrun", append([]string{"--name", kit.NewName()}, args...)...)
	cmd.Stdin = stdin
	cmd.Env = []string{"PATH=/system/bin", "ANDROID_ROOT=/system", "ANDROID_DATA=/data", "TMPDIR=/data/local/tmp", fmt.Sprintf("LKLRUN_RUN_DIR=/data/local/tmp/run%d", uid)}
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	var p *kit.Proc
	if err := a.enter(func() { p = kit.Start(t, cmd) }); err != nil || p == nil {
		t.Fatalf("starting %v: %v", cmd.Args, err)
	}
	return p
}

// enter calls f on a thread whose root is the system's. A chroot would not do: it forbids
// user namespaces.
func (a *android) enter(f func()) error {
	done := make(chan error, 1)
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		err := a.in.Join()
		if err == nil {
			err = unix.Unshare(unix.CLONE_NEWNS)
		}
		if err == nil {
			err = errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Chdir(a.root),
				unix.PivotRoot(".", "."), unix.Unmount(".", unix.MNT_DETACH), unix.Chdir("/"))
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	return <-done
}

// TestAndroidRoot runs programs of a real Android system with each engine, as root on a tap
// and as the user of `adb shell` on the gateway. The system's C library passes each socket to
// netd and has no /etc/resolv.conf.
func TestAndroidRoot(t *testing.T) {
	kit.Need(t, "iperf3", "dnsmasq")
	s := kit.NewSite(t)
	port := s.Server.EchoTCP(t, kit.ServerAddr+":0")
	s.Server.Dnsmasq(t, map[string]string{"www.test": kit.ServerAddr, "gateway.test": "192.168.127.1"})
	s.Server.Iperf3(t)
	n := newNetd(t)
	a := newAndroid(t, kit.Host)
	users := []struct {
		uid             uint32
		spec, address   string // the interface, and the address of the stack there
		answer, answer6 string // a name and an address that answer pings
	}{
		{0, s.TapIf(), kit.StackAddr, "www.test", kit.ServerAddr6},
		{shellUID, "user", "192.168.127.2", "gateway.test", "fd6c:6b6c:7275:6e00::1"},
	}
	for _, p := range []struct{ command, stdin, want string }{
		{"ip addr", "", `inet ADDRESS/24`},
		{"ss -tan", "", `Local Address:Port`},
		{"ping -c 1 -w 9 ANSWER", "", ` 0% packet loss`},
		{"ping6 -c 1 -w 9 ANSWER6", "", ` 0% packet loss`},
		{fmt.Sprintf("toybox nc %s %d", kit.ServerAddr, port), "over the stack\n", `^over the stack\n$`},
		{fmt.Sprintf("toybox nc www.test %d", port), "by name\n", `^by name\n$`},
		{"iperf3 -c " + kit.ServerAddr + " -n 20M", "", `iperf Done`},
		{"iperf3 -R -c " + kit.ServerAddr + " -t 1", "", `iperf Done`}, // with -n, this iperf3 does not end
		{"iperf3 -u -c " + kit.ServerAddr + " -b 20M -n 2M", "", `iperf Done`},
	} {
		for _, engine := range androidEngines {
			for _, by := range users {
				fill := strings.NewReplacer("ADDRESS", by.address, "ANSWER6", by.answer6, "ANSWER", by.answer)
				args := append([]string{"--engine", engine, "--if", by.spec, "--"}, strings.Fields(fill.Replace(p.command))...)
				t.Run(fmt.Sprintf("%s/%s/%d", p.command, engine, by.uid), func(t *testing.T) { a.program(t, by.uid, args, p.stdin, fill.Replace(p.want)) })
			}
		}
	}
	for _, engine := range androidEngines {
		t.Run("accept/"+engine, func(t *testing.T) { a.accepts(s.In(t), engine) })
	}
	if c := n.asked.Load(); c != 0 {
		t.Errorf("netd was asked %d times, want 0", c)
	}
}

// program runs a program, whose input stays open until its output is as wanted.
func (a *android) program(t *testing.T, uid uint32, args []string, stdin, want string) {
	in, out := io.Pipe()
	p := a.start(t, uid, in, append([]string{"-q", "--dns", kit.ServerAddr, "--sysctl", "net.ipv4.ping_group_range=0 2147483647"}, args...)...)
	go func() {
		_, _ = io.WriteString(out, stdin) // the program may end without reading it
		if stdin != "" {
			kit.Within(kit.Limit, func() bool { stdout, _ := p.Output(); return stdout == stdin || !p.Running() })
		}
		out.Close()
	}()
	if r := p.Wait(kit.Limit); r.Status != 0 || !regexp.MustCompile(want).MatchString(r.Stdout) {
		t.Errorf("%q: %v\nwant: %s", args, r, want)
	}
}

// accepts runs a server of the system, to which the site's server connects.
func (a *android) accepts(s *kit.Site, engine string) {
	in, out := io.Pipe()
	defer out.Close()
	p := a.start(s.T, 0, in, "-q", "--engine", engine, "--if", s.TapIf(), "--", "toybox", "nc", "-l", "-p", "77")
	var c net.Conn
	kit.WaitFor(s.T, "the program's port", kit.Limit, func() bool {
		return s.Server.Enter(func() (err error) {
			c, err = net.DialTimeout("tcp", kit.StackAddr+":77", kit.Limit)
			return err
		}) == nil
	})
	_, err := io.WriteString(c, "from the server\n")
	kit.Must(s.T, err)
	kit.WaitFor(s.T, "the program's output", kit.Limit, func() bool { stdout, _ := p.Output(); return stdout == "from the server\n" })
	c.Close()
	out.Close()
	if r := p.Wait(kit.Limit); r.Status != 0 {
		s.T.Errorf("%v", r)
	}
}

// TestAndroidPaths transfers with the system's iperf3 over two paths at once.
func TestAndroidPaths(t *testing.T) {
	kit.Need(t, "iperf3", "mptcpize")
	p := kit.NewPathSite(t)
	newNetd(t)
	a := newAndroid(t, p.Host)
	kit.Start(t, p.Server.Command("mptcpize", "run", "iperf3", "-s"))
	kit.WaitFor(t, "iperf3's server", kit.Limit, func() bool { return strings.Contains(p.Server.Run(t, "ss", "-Htln"), ":5201") })
	for _, engine := range androidEngines {
		for _, direction := range [][]string{nil, {"-R"}} {
			args := []string{"-q", "--engine", engine, "--if", p.Ifs[0], "--if", p.Ifs[1], "--", "iperf3", "-J", "-t", "5", "-c", p.Addr}
			r := a.start(t, 0, nil, append(args, direction...)...).Wait(kit.Limit)
			var report struct {
				End struct {
					Received struct {
						Speed float64 `json:"bits_per_second"`
					} `json:"sum_received"`
				}
			}
			if err := json.Unmarshal([]byte(r.Stdout), &report); err != nil || r.Status != 0 {
				t.Fatalf("%s: %v: %v", engine, err, r)
			}
			t.Logf("%s %s: %.0f Mbit/s over two paths of %s", engine, direction, report.End.Received.Speed/1e6, kit.PathRate)
			if report.End.Received.Speed < 110e6 {
				t.Errorf("%s %s: %.0f bit/s, as over one path", engine, direction, report.End.Received.Speed)
			}
		}
	}
}
