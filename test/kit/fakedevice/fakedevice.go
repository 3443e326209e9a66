// SPDX-License-Identifier: Apache-2.0

// Package fakedevice provides tests with emulated phones and a real adb server for them.
// A phone is the program ./phone in namespaces of its own, as minimal as Android's shell
// (image). It may have another architecture if the kernel runs its programs through
// qemu-user. Its adbd implements the requests of that server (package adbd).
package fakedevice

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/fakedevice/image"
)

// limit bounds actions that are fast on an idle machine.
const limit = 20 * time.Second

// Options describe a phone. The zero value is an arm64 phone with Magisk's su and without
// any C library.
type Options struct {
	Arch         string            // as Go calls it: arm64 (also ""), arm, amd64, 386
	Debian       bool              // has glibc, curl, coreutils and dash, below Tree
	ABI          string            // reported by getprop, if not Arch
	Su           string            // "magisk", "aosp" or "none"; "": magisk
	Storage      int64             // bytes of /data; 0: 512 MB
	Unauthorized bool              // the key of this computer was not accepted
	Props        map[string]string // further properties
	Programs     map[string]string // further shell scripts in /system/bin
}

// architecture holds the names that belong together.
type architecture struct {
	debian, abi string
}

var architectures = map[string]architecture{
	"amd64": {"amd64", "x86_64"},
	"arm64": {"arm64", "arm64-v8a"},
	"arm":   {"armhf", "armeabi-v7a"},
	"386":   {"i386", "x86"},
}

// Tree is the location of the phone's Debian packages, if it has any. /lib and /usr point
// there.
const Tree = image.Tree

func parts(root string) string { return filepath.Join(root, "build", "test", "phone") }

// envLacking tells New, which runs in the tests' own namespaces, why Build failed.
const envLacking = "LKLRUN_TEST_PHONES"

// Programs returns Build as a step for kit.EndToEnd. Without root, the step does nothing,
// because phones need namespaces.
func Programs(archs ...string) func(root string) error {
	return func(root string) error {
		if os.Geteuid() != 0 {
			return nil // phones need namespaces
		}
		return Build(root, archs...)
	}
}

// Build prepares phones of the architectures, for a TestMain: it downloads packages and
// enables their programs in the kernel. If that fails, only tests with phones fail. It
// omits another CPU if bin/ has no bundle for it, because only `make test-all` needs
// that.
func Build(root string, archs ...string) error {
	if err := build(root, archs); err != nil {
		return os.Setenv(envLacking, err.Error())
	}
	return nil
}

func build(root string, archs []string) error {
	steps := [][]string{{"go", "build", "-trimpath", "-o", filepath.Join(parts(root), "phone"), "./test/kit/fakedevice/phone"}}
	for _, a := range archs {
		d := architectures[a].debian
		if strings.HasPrefix(a, "arm") {
			if _, err := os.Stat(filepath.Join(root, "bin", "bundles", "lklrun-"+a+".json")); err != nil {
				continue
			}
			steps = append(steps, []string{".ci/binfmt"})
		}
		steps = append(steps,
			[]string{".ci/fetch-debs", d, filepath.Join(parts(root), a, "busybox"), "busybox-static"},
			[]string{".ci/fetch-debs", "--deps", d, filepath.Join(parts(root), a, "debian"), "curl", "coreutils", "dash"})
	}
	for _, s := range steps {
		cmd := exec.Command(s[0], s[1:]...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(s, " "), err, out)
		}
	}
	return nil
}

// Phone is a running device.
type Phone struct {
	*kit.Proc
	t      testing.TB
	Net    *kit.Netns // the device's network
	Serial string     // adb's name of it: the address of adbd
	Wire   string     // the test's end of the veth pair that stands for the cable
}

var count atomic.Int32

// New starts a phone, connected to the tests' own namespace.
func New(t testing.TB, o Options) *Phone {
	t.Helper()
	kit.Need(t, "ip", "adb")
	if lacking := os.Getenv(envLacking); lacking != "" {
		t.Fatalf("phones cannot be made: %s", lacking)
	}
	if o.Arch == "" {
		o.Arch = "arm64"
	}
	if o.Su == "" {
		o.Su = "magisk"
	}
	n := count.Add(1)
	p := &Phone{t: t, Net: kit.NewNetns(t, "phone"), Wire: fmt.Sprintf("cable%d", n)}
	kit.Veth(t, kit.Host, p.Wire, p.Net, "adb0")
	kit.Host.Addr(t, p.Wire, fmt.Sprintf("10.99.%d.1/24", n))
	addr := fmt.Sprintf("10.99.%d.2", n)
	p.Net.Addr(t, "adb0", addr+"/24")
	p.Serial = addr + ":5555"

	from := filepath.Join(parts(kit.Root()), o.Arch)
	if _, err := os.Stat(from); err != nil {
		t.Fatalf("no programs for a phone with %s: make cross-%s: %v", o.Arch, o.Arch, err)
	}
	im := image.Image{
		At: kit.StateHome, Busybox: from + "/busybox/bin/busybox",
		Programs: o.Programs, Storage: o.Storage, Props: properties(o),
	}
	if o.Debian {
		im.Packages = from + "/debian"
	}
	if o.Su != "none" {
		im.Su = o.Su
	}
	config, err := json.Marshal(map[string]any{
		"Linux32": o.Arch == "386",
		"Image":   im, "Listen": p.Serial, "Unauthorized": o.Unauthorized,
		"Banner": "device::ro.product.name=fake;ro.product.model=Fake;ro.product.device=fake;features=shell_v2,cmd,stat_v2,fixed_push_mkdir",
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(parts(kit.Root()), "phone"), string(config))
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
	p.Net.Do(t, func() error {
		p.Proc = kit.Start(t, cmd)
		return nil
	})
	kit.WaitFor(t, "the phone", limit, func() bool {
		if !p.Running() {
			t.Fatalf("the phone: %v", p.Wait(time.Second))
		}
		out, _ := p.Output()
		return strings.Contains(out, "listening")
	})
	return p
}

func properties(o Options) map[string]string {
	abi := architectures[o.Arch].abi
	if o.ABI != "" {
		abi = o.ABI
	}
	all := map[string]string{
		"ro.product.cpu.abi": abi, "ro.product.cpu.abilist": abi, "ro.product.model": "Fake",
		"ro.build.version.sdk": "33", "ro.build.version.release": "13", "ro.debuggable": "1", "sys.boot_completed": "1",
	}
	for name, value := range o.Props {
		all[name] = value
	}
	return all
}

// Path is the path by which the tests reach a path of the phone.
func (p *Phone) Path(path string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", p.Pid()), path)
}

// Unplug cuts the connection; neither side is notified.
func (p *Phone) Unplug() { kit.Host.Run(p.t, "ip", "link", "set", p.Wire, "down") }

// Plug restores the connection.
func (p *Phone) Plug() {
	kit.Host.Run(p.t, "ip", "link", "set", p.Wire, "up")
}

// Hang stops adbd; the processes that it started continue.
func (p *Phone) Hang() { kit.Pause(p.t, p.adbd(), limit) }

// Wake lets adbd continue.
func (p *Phone) Wake() {
	if err := unix.Kill(p.adbd(), unix.SIGCONT); err != nil {
		p.t.Fatal(err)
	}
}

// Processes are the phone's processes except init and adbd, each with its pid here and
// its command.
func (p *Phone) Processes() []string {
	var all []string
	for _, q := range p.all() {
		if q.pid != p.Pid() && !q.adbd(p) {
			all = append(all, fmt.Sprintf("%d %s", q.pid, q.command))
		}
	}
	return all
}

func (p *Phone) adbd() int {
	p.t.Helper()
	for _, q := range p.all() {
		if q.adbd(p) {
			return q.pid
		}
	}
	p.t.Fatal("the phone has no adbd")
	return 0
}

type process struct {
	pid, parent int
	command     string
}

func (q process) adbd(p *Phone) bool {
	return q.parent == p.Pid() && strings.HasPrefix(q.command, "adbd ")
}

// all finds the processes in the phone's pid namespace.
func (p *Phone) all() []process {
	namespace := func(pid string) string {
		ns, _ := os.Readlink("/proc/" + pid + "/ns/pid") // empty if the process has ended
		return ns
	}
	ours := namespace(fmt.Sprint(p.Pid()))
	var all []process
	dirs, _ := filepath.Glob("/proc/[0-9]*") // a constant pattern causes no error
	for _, dir := range dirs {
		q := process{}
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil || namespace(filepath.Base(dir)) != ours || ours == "" {
			continue // ended, or in another namespace
		}
		i := strings.LastIndexByte(string(stat), ')')
		state := ""
		if _, err := fmt.Sscan(string(stat[i+1:]), &state, &q.parent); err != nil || state == "Z" {
			continue // the process has ended
		}
		cmdline, err := os.ReadFile(dir + "/cmdline")
		if err != nil || len(cmdline) == 0 {
			continue // it is exiting
		}
		q.command = strings.ReplaceAll(string(cmdline), "\x00", " ")
		if _, err := fmt.Sscan(filepath.Base(dir), &q.pid); err == nil {
			all = append(all, q)
		}
	}
	return all
}
