// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package run

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// appUID is a user ID of the range that Android gives to apps.
const appUID = 10123

//go:embed testdata/app_work.py
var appWork string

//go:embed testdata/app_old.py
var appOld string

// asApp returns a command line in the situation of an Android app: an ordinary user who
// cannot create namespaces, under a seccomp filter with an app's calls.
func asApp(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("sh", append([]string{"-c",
		fmt.Sprintf(`echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all --reuid=%d --regid=%[1]d --clear-groups "$@"`, appUID),
		"sh", dir + "/appfilter", "-libc"}, args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "LANG=C.UTF-8", "LKLRUN_RUN_DIR=" + dir + "/run"}
	cmd.SysProcAttr = kit.InUserNamespace()
	return cmd
}

// appPlace returns a directory with the programs, and with a folder of the app's own for
// run directories.
func appPlace(t *testing.T) string {
	t.Helper()
	kit.Need(t, "setpriv", "/usr/bin/python3")
	dir := kit.PublicBin(t)
	kit.Host.Run(t, "install", "-m", "755", kit.Program("appfilter"), kit.Probe(), dir)
	kit.Must(t, os.Mkdir(dir+"/run", 0o700), os.Chown(dir+"/run", appUID, appUID))
	return dir
}

// TestApp checks that lklrun and a program run under the seccomp filter of an Android app,
// without namespaces, on an interface that another process has opened. Children and
// system calls that the library does not intercept have no network.
func TestApp(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	s.Server.EchoUDP(t, kit.ServerAddr+":7")
	port := kit.Host.EchoTCP(t, "127.0.0.1:0")
	dir := appPlace(t)
	before := kit.Take(t, s.Server)
	tap := kit.OpenTun(t, kit.Host, "tap0", unix.IFF_TAP|unix.IFF_NO_PI)
	defer tap.Close()
	name := kit.NewName()
	cmd := asApp(dir, dir+"/lklrun", "--name", name, "--if", "fd:3,ip="+kit.StackAddr+"/24", "--",
		"/usr/bin/python3", "-c", appWork, kit.ServerAddr, fmt.Sprint(port), dir+"/probe")
	cmd.ExtraFiles = []*os.File{tap}
	in, err := cmd.StdinPipe()
	kit.Must(t, err)
	p := kit.Start(t, cmd)
	const want = "TCP: HTTP/1.1 200 OK\nUDP: ping\nhost: ConnectionRefusedError\nbare socket: ENETDOWN\nbare io_uring: ENOSYS\nbare tap: EPERM\nprobe: dial tcp " + kit.ServerAddr + ":80: socket: network is down\n"
	defer func() {
		if t.Failed() {
			out, errs := p.Output()
			t.Logf("the program: %s%s", out, errs)
		}
	}()
	kit.WaitFor(t, "the program", kit.Limit, func() bool { out, _ := p.Output(); return len(out) >= len(want) || !p.Running() })
	r := kit.Run(t, kit.Limit, asApp(dir, dir+"/lklctl", "list"))
	if r.Status != 0 || !strings.Contains(r.Stdout, name) {
		t.Errorf("lklctl list: %v", r)
	}
	if r := kit.Run(t, kit.Limit, asApp(dir, dir+"/lklctl", "--name", name, "ss", "-ltn")); r.Status != 0 || !strings.Contains(r.Stdout, "4242") {
		t.Errorf("lklctl ss: %v", r)
	}
	kit.Must(t, in.Close())
	r = p.Wait(kit.Limit)
	if r.Status != 0 || r.Stdout != want {
		t.Errorf("%v\nwant: %s", r, want)
	}
	for _, said := range []string{"the kernel is loaded into the command", "only the seccomp filter isolates the command"} {
		if strings.Count(r.Stderr, said) != 1 {
			t.Errorf("stderr does not say %q once: %s", said, r.Stderr)
		}
	}
	tap.Close()
	before.Same()
}

// TestAppLent checks that a helper of root opens an interface for each run of an app, and
// for nobody else.
func TestAppLent(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	dir := appPlace(t)
	socket := dir + "/lent"
	before := kit.Take(t, s.Server)
	lend := kit.Start(t, exec.Command(dir+"/lklrun", "device", "lend", socket, fmt.Sprint(appUID), "tap:tap0"))
	kit.WaitFor(t, "the helper", kit.Limit, func() bool {
		st, err := os.Stat(socket)
		return err == nil && st.Sys().(*syscall.Stat_t).Uid == appUID || !lend.Running()
	})
	take := []string{dir + "/lklrun", "device", "take", socket, dir + "/lklrun", "-q", "--name", kit.NewName(), "--if", "fd:100,ip=" + kit.StackAddr + "/24", "--",
		"/usr/bin/python3", "-c", `import socket; c = socket.create_connection(("` + kit.ServerAddr + `", 80), 10); c.sendall(b"GET /hello HTTP/1.0\r\n\r\n"); print(c.makefile().readline().strip())`}
	for range 2 { // an app is started again and again
		if r := kit.Run(t, kit.Limit, asApp(dir, take...)); r.Status != 0 || r.Stdout != "HTTP/1.1 200 OK\n" {
			t.Errorf("the app: %v", r)
		}
	}
	// Another user can neither take the interface nor end the helper.
	for _, args := range [][]string{take, {dir + "/lklrun", "device", "lend", "--end", socket}} {
		if r := kit.Run(t, kit.Limit, kit.AsUser(exec.Command(args[0], args[1:]...), "")); r.Status == 0 || r.Stdout != "" || !strings.Contains(r.Stderr, "permission denied") {
			t.Errorf("another user: %v", r)
		}
	}
	if r := kit.Run(t, kit.Limit, asApp(dir, dir+"/lklrun", "device", "lend", "--end", socket)); r.Status != 0 || !lend.Running() {
		t.Errorf("the app ended the helper: %v", r)
	}
	// If the interface cannot be opened, one line says why.
	tap := kit.OpenTun(t, kit.Host, "tap0", unix.IFF_TAP|unix.IFF_NO_PI)
	r := kit.Run(t, kit.Limit, asApp(dir, take...))
	if said := kit.Lines(r.Stderr); r.Status != 2 || len(said) != 1 || !strings.Contains(said[0], "tap0 is in use by") {
		t.Errorf("with the tap in use: %v", r)
	}
	tap.Close()
	kit.OK(t, kit.Limit, exec.Command(dir+"/lklrun", "device", "lend", "--end", socket))
	if r := lend.Wait(kit.Limit); r.Status != 0 || r.Stderr != "" {
		t.Errorf("the helper: %v", r)
	}
	before.Same()
}

// TestAppFilter checks that the filter of TestApp ends programs that make other calls.
func TestAppFilter(t *testing.T) {
	dir := appPlace(t)
	r := kit.Run(t, kit.Limit, asApp(dir, "/usr/bin/python3", "-c", "import os; os.pidfd_open(os.getpid())"))
	if r.Signal != syscall.SIGSYS {
		t.Errorf("a program that opens a pidfd: %v", r)
	}
}

// TestAppOldCalls checks calls of a program that only newer calls replace, and that a
// program's own handler of SIGSYS still receives the signal.
func TestAppOldCalls(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("only x86-64 has these calls")
	}
	dir := appPlace(t)
	want := kit.OK(t, kit.Limit, exec.Command("/usr/bin/python3", "-c", appOld, "host")) + "pidfd_open ENOSYS\nown handler ['SIGSYS']\n"
	r := kit.Run(t, kit.Limit, asApp(dir, dir+"/lklrun", "-q", "--name", kit.NewName(), "--", "/usr/bin/python3", "-c", appOld, "app"))
	if r.Status != 0 || r.Stdout != want {
		t.Errorf("%v\nwant: %s", r, want)
	}
}

// TestAppPlan checks that a plan names the missing network namespace, and that supervise
// is refused with the reason.
func TestAppPlan(t *testing.T) {
	dir := appPlace(t)
	r := kit.Run(t, kit.Limit, asApp(dir, dir+"/lklrun", "--dry-run", "--", "/bin/true"))
	if r.Status != 0 || !strings.Contains(r.Stdout, "engine    preload, without a network namespace\n") {
		t.Errorf("the plan: %v", r)
	}
	r = kit.Run(t, kit.Limit, asApp(dir, dir+"/lklrun", "--engine", "supervise", "--", "/bin/true"))
	if said := kit.Lines(r.Stderr); r.Status != 2 || len(said) != 1 || !strings.Contains(said[0], "pidfd_getfd") {
		t.Errorf("supervise: %v", r)
	}
}

// TestAppLibrary checks that doctor and lklrun name a library that programs cannot load,
// because the host does not allow to execute it.
func TestAppLibrary(t *testing.T) {
	dir := appPlace(t)
	library := dir + "/liblklpreload.so"
	kit.Must(t, unix.Mount(library, library, "", unix.MS_BIND, ""), unix.Mount("", library, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOEXEC, ""))
	t.Cleanup(func() { kit.Must(t, unix.Unmount(library, 0)) })
	const why = "liblklpreload.so: it cannot be executed there"
	r := kit.Run(t, kit.Limit, asApp(dir, dir+"/lklrun", "doctor", "true"))
	if r.Status != 0 || !strings.Contains(r.Stdout, why) { // the engine trace does without the library
		t.Errorf("lklrun doctor: %v", r)
	}
	r = kit.Run(t, kit.Limit, asApp(dir, dir+"/lklrun", "--engine", "preload", "--", "true"))
	if r.Status == 0 || r.Status > 2 || len(kit.Lines(r.Stderr)) != 1 || !strings.Contains(r.Stderr, why) {
		t.Errorf("lklrun --engine preload: %v", r)
	}
}
