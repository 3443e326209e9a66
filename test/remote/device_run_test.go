// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit/terminal"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/fakedevice"
)

// phoneRun is a phone on which programs are run.
type phoneRun struct {
	*desk
	phone *fakedevice.Phone
	dev   string   // the device, as in --device
	flags []string // for an interface of the phone whose changes a run must undo; empty for emulated phones
	clean string   // result of pristine after the bundle was installed
}

func (p *phoneRun) on(args ...string) kit.Result {
	p.t.Helper()
	run := kit.Start(p.t, p.run(p.dev, append([]string{"-q"}, args...)...))
	if !kit.Within(deviceLimit, func() bool { return !run.Running() }) {
		p.t.Logf("on the phone: %q", p.phone.Processes())
	}
	return noted(run.Wait(time.Second))
}

// noted removes the lines that lklrun prints for every run on such phones: Android has
// no /etc/resolv.conf and a read-only root, and qemu's emulation does not mount FUSE.
func noted(r kit.Result) kit.Result {
	var rest strings.Builder
	for line := range strings.Lines(r.Stderr) {
		if !strings.HasPrefix(line, "lklrun: the command sees the host's /etc/resolv.conf") &&
			!strings.HasPrefix(line, "lklrun: covering the host's /proc/net") {
			rest.WriteString(line)
		}
	}
	r.Stderr = rest.String()
	return r
}

// TestDevice tests a rooted phone of this machine's architecture, where all features of
// lklrun are available.
func TestDevice(t *testing.T) {
	onPhone(t, fakedevice.Options{Arch: "amd64", Debian: true}, "supervise", "--if", "raw:wlan0")
}

// TestDeviceARM64 tests an emulated arm64 phone. qemu-user has no seccomp notification,
// so the kernel runs in the program's own process.
func TestDeviceARM64(t *testing.T) {
	onPhone(t, fakedevice.Options{Debian: true}, "preload")
}

func onPhone(t *testing.T, o fakedevice.Options, engine string, flags ...string) {
	d := newDesk(t)
	phone := fakedevice.New(t, o)
	wifi(t, phone)
	d.adb.Connect(phone, "device")
	p := &phoneRun{desk: d, phone: phone, dev: "adb:" + phone.Serial, flags: flags}
	sub := func(name string, f func(*phoneRun)) {
		t.Run(name, func(t *testing.T) {
			q := *p
			q.desk = d.in(t)
			f(&q)
		})
	}
	sub("push", (*phoneRun).pushedOnce)
	if t.Failed() {
		return
	}
	kit.WaitFor(t, "the end of the first runs", kit.Limit, func() bool { return len(phone.Processes()) == 0 })
	p.clean = pristine(t, phone)
	sub("engine", func(p *phoneRun) { p.engine(engine) })
	sub("status", (*phoneRun).statuses)
	sub("input", (*phoneRun).input)
	sub("interrupt", (*phoneRun).interrupt)
	sub("terminal", (*phoneRun).terminal)
	sub("ctl", (*phoneRun).verbs)
	sub("unplugged", (*phoneRun).unplugged)
	sub("gone", (*phoneRun).gone)
}

// pushedOnce checks that the first run copies the bundle and the second run copies
// nothing.
func (p *phoneRun) pushedOnce() {
	sent := func() int {
		n, err := strconv.Atoi(strings.TrimSpace(kit.Host.Run(p.t, "cat", "/sys/class/net/"+p.phone.Wire+"/statistics/tx_bytes")))
		if err != nil {
			p.t.Fatal(err)
		}
		return n
	}
	var cost [2]int
	for n := range cost {
		before := sent()
		// lklrun must not ask the adb server for "the only device", because other devices
		// may exist.
		r := p.on("--", "/usr/bin/curl", "-sS", phoneURL+"/hello")
		if r.Status != 0 || r.Stdout != "hello\n" || r.Stderr != "" {
			p.t.Fatalf("curl: %v", r)
		}
		cost[n] = sent() - before
	}
	if cost[0] < 1<<20 || cost[1] > 100<<10 {
		p.t.Errorf("the runs took %d and %d bytes", cost[0], cost[1])
	}
	bundles, _ := filepath.Glob(p.phone.Path("/data/local/tmp/lklrun/????????????")) // a constant pattern causes no error
	others, _ := filepath.Glob(p.phone.Path("/data/local/tmp/lklrun/????????????.*"))
	if len(bundles) != 1 || len(others) != 0 {
		p.t.Errorf("bundles: %q, %q", bundles, others)
	}
}

// running waits until lklctl list on the desk shows the run.
func (p *phoneRun) running(name string, run *kit.Proc) (info instance.Info) {
	p.t.Helper()
	seen := func() bool {
		r := kit.Run(p.t, deviceLimit, p.program("lklctl", "--device", p.dev, "list", "-o", "json"))
		var all []instance.Info
		if json.Unmarshal([]byte(r.Stdout), &all) != nil {
			return false
		}
		n := slices.IndexFunc(all, func(i instance.Info) bool { return i.Name == name && i.TargetPID != 0 })
		if n >= 0 {
			info = all[n]
		}
		return n >= 0
	}
	if !kit.Within(kit.Limit, func() bool { return !run.Running() || seen() }) || info.Name == "" {
		out, errs := run.Output()
		p.t.Fatalf("the run is not seen from here: %s%s", out, errs)
	}
	return info
}

// engine checks that the program ran on the stack, with the engine that the phone
// allows.
func (p *phoneRun) engine(want string) {
	run := kit.Start(p.t, p.run(p.dev, "--name", "engine", "--", phoneBin+"sleep", "600"))
	if got := p.running("engine", run); got.Engine != want {
		p.t.Errorf("%+v, want the engine %s", got, want)
	}
	run.Signal(unix.SIGTERM)
	if r := run.Wait(deviceLimit); r.Signal != unix.SIGTERM {
		p.t.Errorf("ended by SIGTERM: %v", r)
	}
	settles(p.t, p.phone, p.clean)
}

// statuses checks that exit statuses and streams are as in a local run.
func (p *phoneRun) statuses() {
	if r := p.on("--", phoneSh, "-c", "echo out; echo err >&2; exit 3"); r.Status != 3 || r.Stdout != "out\n" || r.Stderr != "err\n" {
		p.t.Errorf("two streams: %v", r)
	}
	if r := p.on("--", "/usr/bin/curl", "-sS", "http://10.81.0.1:1/"); r.Status != 7 || r.Stdout != "" || !strings.Contains(r.Stderr, "10.81.0.1 port 1") {
		p.t.Errorf("curl is refused: %v", r)
	}
	if r := p.on("--", phoneSh, "-c", "kill -USR1 $$"); r.Signal != unix.SIGUSR1 {
		p.t.Errorf("ended by a signal: %v", r)
	}
	if r := p.on("--", "/nonexistent"); r.Status != 127 || !strings.Contains(r.Stderr, "/nonexistent") {
		p.t.Errorf("not there: %v", r)
	}
	settles(p.t, p.phone, p.clean)
}

// input checks that 100 MB of input arrive completely and unchanged.
func (p *phoneRun) input() {
	path := filepath.Join(kit.Dir(p.t), "large")
	kit.Random(p.t, path, 100<<20)
	in, err := os.Open(path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer in.Close()
	h := sha256.New()
	cmd := p.run(p.dev, "-q", "--", phoneBin+"cat")
	cmd.Stdin, cmd.Stdout = in, h
	began := time.Now()
	if r := noted(kit.Run(p.t, deviceLimit, cmd)); r.Status != 0 || r.Stderr != "" {
		p.t.Fatalf("%v", r)
	}
	p.t.Logf("100 MB there and back: %v", time.Since(began).Round(10*time.Millisecond))
	data, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatal(err)
	}
	if want := sha256.Sum256(data); !bytes.Equal(h.Sum(nil), want[:]) {
		p.t.Error("other bytes came back")
	}
	// If the command does not read the input, it stays in the file, and the file offset
	// does not move.
	if _, err := in.Seek(0, 0); err != nil {
		p.t.Fatal(err)
	}
	cmd = p.run(p.dev, "-q", "--", phoneBin+"true")
	cmd.Stdin = in
	if r := kit.Run(p.t, deviceLimit, cmd); r.Status != 0 {
		p.t.Errorf("without reading: %v", r)
	}
	if at, err := in.Seek(0, 1); err != nil || at > 4<<20 {
		p.t.Errorf("true was given %d bytes, %v", at, err)
	}
	settles(p.t, p.phone, p.clean)
}

// interrupt checks that a signal to lklrun reaches the command, and that lklrun ends
// with the command.
func (p *phoneRun) interrupt() {
	const trap = `trap 'echo heard; exit 5' INT; echo ready; while :; do sleep 0.1; done`
	run := kit.Start(p.t, p.run(p.dev, "-q", "--", phoneSh, "-c", trap))
	kit.WaitFor(p.t, "the command", deviceLimit, func() bool { out, _ := run.Output(); return out != "" || !run.Running() })
	run.Signal(unix.SIGINT)
	if r := run.Wait(deviceLimit); r.Status != 5 || r.Stdout != "ready\nheard\n" {
		p.t.Errorf("caught: %v", r)
	}
	run = kit.Start(p.t, p.run(p.dev, "-q", "--", phoneSh, "-c", "echo ready; exec sleep 600"))
	kit.WaitFor(p.t, "the command", deviceLimit, func() bool { out, _ := run.Output(); return out != "" || !run.Running() })
	run.Signal(unix.SIGINT)
	if r := run.Wait(deviceLimit); r.Signal != unix.SIGINT {
		p.t.Errorf("not caught: %v", r)
	}
	settles(p.t, p.phone, p.clean)
}

// terminal checks that a command started on the desk's terminal has a terminal on the
// phone, with its size and its keys.
func (p *phoneRun) terminal() {
	const script = `stty size; trap 'stty size; echo resized' WINCH; trap 'echo interrupted; exit 6' INT; echo ready; while :; do sleep 0.1; done`
	term := terminal.New(p.t, 100, 30, p.run(p.dev, "-q", "--", phoneSh, "-c", "PATH="+phoneBin+"; "+script))
	term.Has("30 100", "ready")
	term.Resize(90, 20)
	term.Has("20 90", "resized")
	term.Press("\x03")
	if r := term.Proc.Wait(deviceLimit); r.Status != 6 || !kit.Within(kit.Limit/10, func() bool { return strings.Contains(term.Screen(), "interrupted") }) {
		p.t.Errorf("the end: %v\n%s", r, term.Screen())
	}
	settings, err := unix.IoctlGetTermios(int(term.Slave.Fd()), unix.TCGETS)
	if err != nil || *settings != term.Before {
		p.t.Errorf("the terminal was not given back as it was: %v", err)
	}
	settles(p.t, p.phone, p.clean)
}

// verbs checks that lklctl shows the run on the phone like a local one.
func (p *phoneRun) verbs() {
	const name = "far"
	run := kit.Start(p.t, p.run(p.dev, "--name", name, "--", "/usr/bin/curl", "-sS", "-o", "/dev/null", "--limit-rate", "500K", phoneURL+"/large"))
	p.running(name, run)
	var out string
	if !kit.Within(kit.Limit, func() bool {
		out = p.ctl(p.dev, "netstat", "--name", name, "-tp")
		return strings.Contains(out, "10.81.0.1:80")
	}) || !strings.Contains(out, "curl") {
		p.t.Errorf("netstat:\n%s", out)
	}
	if out := p.ctl(p.dev, "mptcp", "limits", "--name", name); !strings.Contains(out, "subflows") {
		p.t.Errorf("mptcp limits:\n%s", out)
	}
	r := kit.Run(p.t, kit.Limit, p.program("lklctl", "--device", p.dev, "mptcp", "--name", name, "-o", "json"))
	if r.Status > 1 || r.Stderr != "" || !json.Valid([]byte(r.Stdout)) {
		p.t.Errorf("mptcp: %v", r)
	}
	if out := p.ctl(p.dev, "sysctl", "--name", name, "net.ipv4.tcp_congestion_control"); !strings.Contains(out, "tcp_congestion_control = ") {
		p.t.Errorf("sysctl:\n%s", out)
	}
	path := filepath.Join(kit.Dir(p.t), "far.pcapng")
	p.ctl(p.dev, "capture", "--name", name, "-w", path, "-c", "10")
	if out := kit.OK(p.t, kit.Limit, kit.Host.Command("tshark", "-r", path, "-T", "fields", "-e", "ip.addr")); strings.Count(out, "10.81.0.1") < 5 { // the others are ARP packets
		p.t.Errorf("capture:\n%s", out)
	}
	run.Signal(unix.SIGTERM)
	run.Wait(deviceLimit)
	settles(p.t, p.phone, p.clean)
}

// long starts a command that does not end by itself.
func (p *phoneRun) long() *kit.Proc {
	p.t.Helper()
	args := append([]string{"-q"}, p.flags...)
	run := kit.Start(p.t, p.run(p.dev, append(args, "--", phoneSh, "-c", "trap '' HUP; echo ready; while :; do sleep 1; done")...))
	kit.WaitFor(p.t, "the command", deviceLimit, func() bool { out, _ := run.Output(); return out != "" || !run.Running() })
	if now := pristine(p.t, p.phone); p.flags != nil && !strings.Contains(now, "table netdev lklrun") {
		p.t.Errorf("no rules of the run's on the phone:\n%s", now)
	}
	return run
}

// unplugged cuts the connection without notice to either side. Both sides must end on
// their own.
func (p *phoneRun) unplugged() {
	run := p.long()
	p.phone.Unplug()
	settles(p.t, p.phone, p.clean)
	r := noted(run.Wait(deviceLimit))
	r.Stdout = strings.TrimPrefix(r.Stdout, "ready\n")
	refusal(p.t, r, 125, p.dev, "connection to the device")
	p.phone.Plug()
	p.adb.Disconnect(p.phone)
	p.adb.Connect(p.phone, "device")
}

// gone ends the connection with notice: the adb server reports that the device is gone,
// and the phone's adbd that the desk is gone. Finally, gone kills the local lklrun.
func (p *phoneRun) gone() {
	run := p.long()
	p.adb.Disconnect(p.phone)
	r := noted(run.Wait(deviceLimit))
	r.Stdout = strings.TrimPrefix(r.Stdout, "ready\n")
	refusal(p.t, r, 125, p.dev, "unplugged")
	settles(p.t, p.phone, p.clean)
	p.adb.Connect(p.phone, "device")

	run = p.long()
	run.Signal(syscall.SIGKILL)
	run.Wait(deviceLimit)
	settles(p.t, p.phone, p.clean)
}
