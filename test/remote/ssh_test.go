// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// These tests of --device use a machine behind a real ssh server. It has this machine's
// kernel, but its own directories, accounts and processes.

// sshLimit allows for runs that first copy the bundle.
const sshLimit = 2 * time.Minute

// farBox is such a machine, behind a wire that can be cut.
type farBox struct {
	t *testing.T
	*kit.SSHServer
}

func newFarBox(t *testing.T, c kit.SSHD) *farBox {
	t.Helper()
	kit.Need(t, kit.Bin("lklrun"), kit.Bin("lklctl"))
	if _, err := os.Stat(kit.Bin("bundles/lklrun-amd64.json")); err != nil {
		t.Fatalf("%v: make cross", err)
	}
	far := kit.NewNetns(t, "far")
	kit.Veth(t, kit.Host, "desk0", far, "far0")
	kit.Host.Addr(t, "desk0", "10.84.0.1/24")
	far.Addr(t, "far0", "10.84.0.2/24")
	c.Net, c.Address = far, "10.84.0.2"
	return &farBox{t, kit.NewSSHD(t, c)}
}

// lklrun is a command line of lklrun for an account on the remote machine.
func (b *farBox) lklrun(user string, args ...string) *exec.Cmd {
	cmd := kit.Lklrun(append([]string{"--device", b.Target(user)}, args...)...)
	cmd.Env = b.Client.Env()
	return cmd
}

// has returns the machine's processes whose command lines contain a word.
func (b *farBox) has(word string) []string {
	var all []string
	lines, _ := filepath.Glob(b.Path("/proc") + "/[0-9]*/cmdline") // a constant pattern causes no error
	for _, l := range lines {
		text, err := os.ReadFile(l)
		if line := strings.ReplaceAll(strings.TrimRight(string(text), "\x00"), "\x00", " "); err == nil && strings.Contains(line, word) {
			all = append(all, filepath.Base(filepath.Dir(l))+" "+line)
		}
	}
	return all
}

// ends checks that nothing of a run is left on the machine, within the time that the
// watchdog allows.
func (b *farBox) ends(t *testing.T, user string) {
	t.Helper()
	began := time.Now()
	var left []string
	if !kit.Within(10*time.Second, func() bool {
		left = b.has("lklrun")
		left = append(left, b.has("lklhost")...)
		for _, dir := range []string{"/run/lklrun/*", fmt.Sprintf("/tmp/lklrun-%d/*", kit.OrdinaryUID)} {
			names, _ := filepath.Glob(b.Path(dir)) // a constant pattern causes no error
			left = append(left, names...)
		}
		return len(left) == 0
	}) {
		t.Errorf("%s's, %v later: %s", user, time.Since(began), strings.Join(left, "\n"))
	}
	t.Logf("nothing left after %v", time.Since(began).Round(time.Millisecond))
}

// runs waits until a command with this word runs on the machine. The processes that
// start it, whose command lines also contain the word, are not enough: a run that is
// killed during its start leaves its directory.
func (b *farBox) runs(t *testing.T, word string) {
	t.Helper()
	kit.WaitFor(t, "the command "+word, sshLimit, func() bool {
		return slices.ContainsFunc(b.has(word), func(p string) bool {
			return !strings.Contains(p, "lklrun") && !strings.Contains(p, "lklhost")
		})
	})
}

func TestSSHRun(t *testing.T) {
	b := newFarBox(t, kit.SSHD{})
	for _, user := range []string{kit.SSHUser, kit.SSHRoot} {
		t.Run(user, func(t *testing.T) { sshOutcomes(t, b, user) })
	}
	t.Run("settings", func(t *testing.T) { sshSettings(t, b) })
	t.Run("both", func(t *testing.T) { sshBoth(t, b) })
	t.Run("stay", func(t *testing.T) { sshStay(t, b) })
	t.Run("terminal", func(t *testing.T) { sshTerminal(t, b) })
	t.Run("killed", func(t *testing.T) { sshKilled(t, b) })
	t.Run("cut", func(t *testing.T) { sshCut(t, b) })
}

// sshOutcomes checks that input, output and exit status are as if the command ran
// locally.
func sshOutcomes(t *testing.T, b *farBox, user string) {
	cmd := b.lklrun(user, "-q", "--", "sh", "-c", `read -r line; printf '%s|%s\n' "$line" "$1"; echo apart >&2; exit 3`, "sh", `a 'b' "c" $d \`)
	cmd.Stdin = strings.NewReader("the input\n")
	r := kit.Run(t, sshLimit, cmd)
	if want := "the input|a 'b' \"c\" $d \\\n"; r.Status != 3 || r.Stdout != want || r.Stderr != "apart\n" {
		t.Errorf("%v, want %q", r, want)
	}
	// Neither unread input nor unread output may end the run or block it.
	cmd = b.lklrun(user, "-q", "--", "true")
	cmd.Stdin, _ = os.Open("/dev/zero")
	if r := kit.Run(t, kit.Limit, cmd); r.Status != 0 || r.Stderr != "" {
		t.Errorf("input that nobody reads: %v", r)
	}
	reader := exec.Command("bash", "-c", `"$@" | head -n 1; exit ${PIPESTATUS[0]}`, "bash", kit.Bin("lklrun"), "--device", b.Target(user), "-q", "--", "yes")
	reader.Env = b.Client.Env()
	if r := kit.Run(t, kit.Limit, reader); kit.ShellStatus(r) != 128+int(unix.SIGPIPE) || r.Stdout != "y\n" || r.Stderr != "" {
		t.Errorf("output that nobody reads: %v", r)
	}
	if r := kit.Run(t, kit.Limit, b.lklrun(user, "-q", "--", "no-such-program")); r.Status != 127 || !strings.Contains(r.Stderr, "no-such-program") {
		t.Errorf("no such program: %v", r)
	}
	for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGTERM} {
		p := kit.Start(t, b.lklrun(user, "-q", "--", "sleep", "4711"))
		b.runs(t, "sleep 4711")
		if err := unix.Kill(p.Pid(), sig); err != nil {
			t.Fatal(err)
		}
		if r := p.Wait(kit.Limit); r.Signal != sig {
			t.Errorf("%v: %v", sig, r)
		}
	}
	b.ends(t, user)
}

// sshSettings checks that files, variables and profiles of the desk apply.
func sshSettings(t *testing.T, b *farBox) {
	file := filepath.Join(kit.Dir(t), "lab.json")
	kit.WriteFile(t, file, `{"sysctl": {"net.ipv4.tcp_ecn": 1}, "profiles": {"lab": {"sysctl": {"net.ipv4.ip_default_ttl": 77}}}, "delay": 1000}`)
	cmd := b.lklrun(kit.SSHRoot, "-q", "--config", file, "--profile", "lab", "--sysctl", "net.ipv4.tcp_sack=0", "--",
		"sh", "-c", "cd /proc/sys/net/ipv4 && cat tcp_ecn ip_default_ttl tcp_sack tcp_fin_timeout")
	cmd.Env = append(cmd.Env, "LKLRUN_SYSCTL=net.ipv4.tcp_fin_timeout=33")
	if r := kit.Run(t, kit.Limit, cmd); r.Status != 0 || r.Stdout != "1\n77\n0\n33\n" {
		t.Errorf("%v", r)
	}
	r := kit.Run(t, kit.Limit, b.lklrun(kit.SSHUser, "--dry-run", "--stack", filepath.Join(kit.Bin("stacks"), "bbr"), "--", "true"))
	if r.Status != 0 || !strings.Contains(r.Stdout, "/.cache/lklrun-remote/") || strings.Contains(r.Stdout, kit.Root()) {
		t.Errorf("a stack that goes along: %v", r)
	}
	r = kit.Run(t, kit.Limit, b.lklrun(kit.SSHRoot, "--dry-run", "--iface", "far0", "--", "true"))
	if r.Status != 0 || !strings.Contains(r.Stdout, "far0") || !strings.Contains(r.Stdout, "sharing 10.84.0.2") {
		t.Errorf("--iface: %v", r)
	}
	file = filepath.Join(kit.Dir(t), "trace.pcapng")
	r = kit.Run(t, kit.Limit, b.lklrun(kit.SSHUser, "-q", "--capture", file, "--", "sh", "-c", "exec 3<>/dev/null; exit 4"))
	if trace, err := os.ReadFile(file); r.Status != 4 || r.Stderr != "" || err != nil || !strings.HasPrefix(string(trace), "\x0a\x0d\x0d\x0a") {
		t.Errorf("--capture: %v: %d bytes, %v", r, len(trace), err)
	}
	if names, _ := filepath.Glob(b.Path("/home/user/.cache/lklrun-remote/*.capture")); len(names) > 0 {
		t.Errorf("--capture leaves %v", names)
	}
	doctor := kit.Lklrun("doctor", "--device", b.Target(kit.SSHUser), "sh")
	doctor.Env = b.Client.Env()
	if r := kit.Run(t, kit.Limit, doctor); r.Status != 0 || !strings.Contains(r.Stdout, "the bundle for amd64") || !strings.Contains(r.Stdout, "none: the shell is uid") {
		t.Errorf("doctor: %v", r)
	}
}

// sshBoth checks several devices at once: lines with the device's name, the same input
// for all, a table, and the first exit status that is not 0.
func sshBoth(t *testing.T, b *farBox) {
	user, root := b.Target(kit.SSHUser), b.Target(kit.SSHRoot)
	cmd := kit.Lklrun("--device", user+","+root, "-q", "--", "sh", "-c", "cat; [ $(id -u) != 0 ] || exit 5")
	cmd.Env = b.Client.Env()
	cmd.Stdin = strings.NewReader("one\ntwo")
	r := kit.Run(t, kit.Limit, cmd)
	for _, at := range []string{user, root} {
		if n := strings.Index(r.Stdout, "["+at+"] one\n"); n < 0 || !strings.Contains(r.Stdout[n:], "["+at+"] two\n") {
			t.Errorf("%s: %v", at, r)
		}
	}
	if r.Status != 5 || strings.Count(r.Stdout, "\n") != 4 || !strings.HasPrefix(r.Stderr, "DEVICE ") || strings.Count(r.Stderr, "\n") != 3 {
		t.Errorf("%v", r)
	}
	// An unreachable device does not delay the others.
	cmd = kit.Lklrun("--device", "ssh:root@10.84.0.2:9,"+root, "-q", "--", "true")
	cmd.Env = b.Client.Env()
	if r := kit.Run(t, kit.Limit, cmd); r.Status != 2 || !strings.Contains(r.Stderr, "Connection refused") || !strings.Contains(r.Stderr, root+"  ") {
		t.Errorf("%v", r)
	}
}

// sshStay checks a run with --stay. The run outlives the connection, and can be stopped.
// While it exists, cleanup must remove nothing.
func sshStay(t *testing.T, b *farBox) {
	r := kit.Run(t, kit.Limit, b.lklrun(kit.SSHRoot, "-q", "--stay", "--name", "stays", "--", "sleep", "4712"))
	if r.Status != 0 || r.Stdout != "stays\n" || r.Stderr != "" {
		t.Fatalf("%v", r)
	}
	cleanup := func() kit.Result {
		cmd := kit.Lklrun("cleanup", "--device", b.Target(kit.SSHRoot))
		cmd.Env = b.Client.Env()
		return kit.Run(t, kit.Limit, cmd)
	}
	if r := cleanup(); r.Status != 1 || !strings.Contains(r.Stderr, "stays: is running (pid ") || len(b.has("sleep 4712")) == 0 {
		t.Errorf("cleanup: %v", r)
	}
	stop := exec.Command(kit.Bin("lklctl"), "--device", b.Target(kit.SSHRoot), "stop", "-n", "stays")
	stop.Env = b.Client.Env()
	if r := kit.Run(t, kit.Limit, stop); r.Status != 0 {
		t.Errorf("stop: %v", r)
	}
	b.ends(t, kit.SSHRoot)
	if r := cleanup(); r.Status != 0 {
		t.Errorf("cleanup: %v", r)
	}
	if _, err := os.Stat(b.Path("/home/root/.cache/lklrun-remote")); !os.IsNotExist(err) {
		t.Errorf("after the cleanup: %v", err)
	}
}

// sshTerminal checks that a command has a terminal if lklrun has one. Meanwhile, lklrun's
// terminal is in raw mode. A background job of a shell must not use the shell's terminal.
func sshTerminal(t *testing.T, b *farBox) {
	kit.Need(t, "script", "stty", "pkill")
	const look = `until grep -qs up out; do sleep 0.1; done; stty -a </dev/tty; pkill -TERM -f "^sleep 4715"`
	command := fmt.Sprintf(`%s --device %s -q -- sh -c 'tty; echo up >&2; exec sleep 4715' 2>out`, kit.Bin("lklrun"), b.Target(kit.SSHUser))
	for name, c := range map[string]struct{ script, has, hasNot string }{
		"foreground": {"(" + look + ") & " + command + "; echo ended with $?", "-icanon", " icanon"},
		"background": {"set -m; " + command + " & " + look + "; wait %1; echo ended with $?", " icanon", "-icanon"},
	} {
		cmd := exec.Command("script", "-qec", c.script, "/dev/null")
		cmd.Dir = kit.Dir(t)
		cmd.Env = append(b.Client.Env(), "SHELL=/bin/bash")
		r := kit.Run(t, kit.Limit, cmd)
		for _, want := range []string{"/dev/pts/", "ended with 143", c.has} {
			if !strings.Contains(r.Stdout, want) || strings.Contains(r.Stdout, c.hasNot) {
				t.Errorf("%s: %v, want %q", name, r, want)
			}
		}
	}
}

// sshKilled kills each process in turn; then the other processes must end.
func sshKilled(t *testing.T, b *farBox) {
	for name, kill := range map[string]func(desk int) int{
		"the desk's lklrun":  func(desk int) int { return desk },
		"the device's half":  func(int) int { return b.pid(t, "lklrun device run") },
		"the device's other": func(int) int { return b.pid(t, "lklrun --configured") },
	} {
		p := kit.Start(t, b.lklrun(kit.SSHUser, "-q", "--", "sleep", "4713"))
		b.runs(t, "sleep 4713")
		if err := unix.Kill(kill(p.Pid()), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if r := p.Wait(kit.Limit); name == "the device's half" && (r.Status != 125 || strings.Count(r.Stderr, "\n") != 1) {
			t.Errorf("%s: %v", name, r)
		}
		t.Log(name)
		b.ends(t, kit.SSHUser)
	}
}

// pid returns the process id, on this machine, of the only process there whose command
// line contains the words.
func (b *farBox) pid(t *testing.T, words string) int {
	t.Helper()
	for _, p := range strings.Fields(kit.Host.Run(t, "pgrep", "-f", words)) {
		var a, c unix.Stat_t
		if unix.Stat("/proc/"+p+"/ns/pid_for_children", &a) == nil && unix.Stat(fmt.Sprintf("/proc/%d/ns/pid_for_children", b.Pid()), &c) == nil && a.Ino == c.Ino {
			var n int
			if _, err := fmt.Sscan(p, &n); err == nil && n != b.Pid() {
				return n
			}
		}
	}
	t.Fatalf("no process %q", words)
	return 0
}

// sshCut cuts the wire. lklrun must print one line here, and leave nothing on the
// machine.
func sshCut(t *testing.T, b *farBox) {
	p := kit.Start(t, b.lklrun(kit.SSHUser, "-q", "--", "sleep", "4714"))
	b.runs(t, "sleep 4714")
	kit.Host.Run(t, "ip", "link", "set", "desk0", "down")
	began := time.Now()
	b.ends(t, kit.SSHUser)
	r := p.Wait(kit.Limit)
	if r.Status != 125 || strings.Count(r.Stderr, "\n") != 1 || !strings.Contains(r.Stderr, "the connection to the device") {
		t.Errorf("%v", r)
	}
	t.Logf("%v after %v: %s", r.Status, time.Since(began).Round(time.Millisecond), r.Stderr)
}

// TestSSHRefused checks that impossible requests are reported in one line, and leave
// nothing on the machine.
func TestSSHRefused(t *testing.T) {
	b := newFarBox(t, kit.SSHD{Home: "size=4m,noexec"})
	stranger := kit.NewSSHClient(t)
	stranger.Know(t, "10.84.0.2", 22, b.Path("/run/sshd-test/host.pub"))
	user, nowhere := b.Target(kit.SSHUser), filepath.Join(t.TempDir(), "no folder", "x.pcapng")
	for name, c := range map[string]struct {
		args   []string
		env    []string
		status int
		want   string
	}{
		"no such kind":        {[]string{"--device", "usb:1", "--", "true"}, nil, 2, `--device "usb:1"; expected adb, adb:SERIAL, ssh:[USER@]HOST[:PORT], all`},
		"no such port":        {[]string{"--device", "ssh:x:0", "--", "true"}, nil, 2, `"0" is not a port`},
		"an option of ssh's":  {[]string{"--device", "ssh:-oProxyCommand=x", "--", "true"}, nil, 2, "not an ssh destination"},
		"nobody listens":      {[]string{"--device", "ssh:user@10.84.0.2:9", "--", "true"}, nil, 2, "Connection refused; try `ssh -p 9 user@10.84.0.2`"},
		"a key that is not":   {[]string{"--device", user, "--", "true"}, stranger.Env(), 2, "Permission denied (publickey); try `ssh -p 22 user@"},
		"no ssh":              {[]string{"--device", user, "--", "true"}, []string{"PATH=/nonexistent"}, 2, "the program ssh is not installed on this machine"},
		"no bundle":           {[]string{"--device", user, "--", "true"}, append(b.Client.Env(), "LKLRUN_BUNDLES=/nonexistent"), 2, "amd64"},
		"no root":             {[]string{"--device", user, "--if", "raw:far0", "--", "true"}, nil, 2, "--if raw:far0 requires root there"},
		"a descriptor":        {[]string{"--device", user, "--if", "fd:7", "--", "true"}, nil, 2, "a device cannot use a descriptor of this machine"},
		"a capture to stay":   {[]string{"--device", user, "--stay", "--capture", "x.pcapng", "--", "true"}, nil, 2, "lklrun cannot fetch the file"},
		"a capture of two":    {[]string{"--device", user + "," + b.Target(kit.SSHRoot), "--capture", "x.pcapng", "--", "true"}, nil, 2, "2 devices cannot write to one file"},
		"a capture nowhere":   {[]string{"--device", user, "--capture", nowhere, "--", "true"}, nil, 2, nowhere + ": no such file"},
		"no command":          {[]string{"--device", user}, nil, 2, "no command to run"},
		"stay without device": {[]string{"--stay", "--", "true"}, nil, 2, "--stay: requires --device"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := kit.Lklrun(c.args...)
			if cmd.Env = c.env; cmd.Env == nil {
				cmd.Env = b.Client.Env()
			}
			r := kit.Run(t, kit.Limit, cmd)
			if r.Status != c.status || r.Stdout != "" || strings.Count(r.Stderr, "\n") != 1 || !strings.Contains(r.Stderr, c.want) {
				t.Errorf("%v, want %d, %q", r, c.status, c.want)
			}
		})
	}
	// The home directory has no room for the bundle, but /tmp has.
	if r := kit.Run(t, sshLimit, b.lklrun(kit.SSHUser, "-q", "--", "sh", "-c", "echo here")); r.Status != 0 || r.Stdout != "here\n" {
		t.Errorf("a home that programs cannot be run from: %v", r)
	}
	if names, _ := filepath.Glob(b.Path("/home/user/.cache/lklrun-remote/*")); len(names) > 0 {
		t.Errorf("in the home: %v", names)
	}
}

// TestSSHChatty checks that lklrun reports a login whose shell prints output of its own.
func TestSSHChatty(t *testing.T) {
	b := newFarBox(t, kit.SSHD{Shell: "/run/chatty"})
	kit.WriteFile(t, b.Path("/run/chatty"), "#!/bin/sh\necho Welcome!\nexec /bin/sh \"$@\"\n")
	if err := os.Chmod(b.Path("/run/chatty"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := kit.Run(t, sshLimit, b.lklrun(kit.SSHUser, "--", "true"))
	if r.Status != 125 || strings.Count(r.Stderr, "\n") != 1 || !strings.Contains(r.Stderr, "the login shell there may print its own text") {
		t.Errorf("%v", r)
	}
}

// TestSSHHostile checks machines that answer with nonsense or end in the middle. Each gets one
// line without control characters, and nothing is left there.
func TestSSHHostile(t *testing.T) {
	b := newFarBox(t, kit.SSHD{Shell: "/run/hostile"})
	for _, c := range []struct {
		name, command, does string // what the login shell does in place of the command
		status              int
		want                string
	}{
		{"a name of escapes", "uname -m", `printf 'machine=\033[2J\r\342\200\256mips\nuid=1\n'; exit`, 2, "its architecture is ?[2J??mips"},
		{"a long line", "uname -m", "head -c 900000 /dev/zero | tr '\\0' x >&2; exit 1", 2, "its shell failed to run a command (status 1): xxx"},
		{"an end during the upload", "gzip -dc", "kill -9 $PPID", 125, "the connection was lost"},
		{"no session", "device run", "printf 'HTTP/1.1 400 Bad Request'; exit", 125, "not a session frame"},
		{"half a frame", "device run", `printf '\011\000\000\000\037{"status":0'; exit`, 125, "the connection to the device was lost"},
		{"no JSON", "device run", `printf '\011\000\000\000\003{{{'; exec sleep 100`, 125, "reading the exit status"},
		{"an end by SIGSTOP", "device run", `printf '\011\000\000\000\031{"status":0, "signal":19}'; exec sleep 100`, 125, "no command ends with status 0 and signal 19"},
		{"a status of 256", "device run", `printf '\011\000\000\000\016{"status":256}'; exec sleep 100`, 125, "no command ends with status 256"},
		{"an endless channel", "device run", `printf '\002\000\000\377\377\001'; exec cat /dev/zero`, 125, "not a session frame"},
		{"names of shell syntax", "never", "", 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			kit.WriteFile(t, b.Path("/run/hostile"), "#!/bin/sh\ncase \"$*\" in *'"+c.command+"'*) "+c.does+" ;; esac\nexec /bin/sh \"$@\"\n")
			kit.Must(t, os.Chmod(b.Path("/run/hostile"), 0o755))
			name := "a b\n$(touch /tmp/hit)`touch /tmp/hit`;touch /tmp/hit'\"\\*"
			r := kit.Run(t, sshLimit, b.lklrun(kit.SSHUser, "-q", "--", "printf", "%s", name))
			if r.Status != c.status || c.status == 0 && r.Stdout != name || len(kit.Lines(r.Stderr)) > 1 || !strings.Contains(r.Stderr, c.want) || len(r.Stderr) > 1000 {
				t.Errorf("status %d: %.1000s, want %d, %q", r.Status, r.Stderr, c.status, c.want)
			}
			if strings.ContainsAny(r.Stderr, "\x1b\r\u202e") {
				t.Errorf("control characters: %q", r.Stderr)
			}
			b.ends(t, kit.SSHUser)
			kit.WaitFor(t, "the end of the upload", kit.Limit, func() bool {
				names, _ := filepath.Glob(b.Path("/home/user/.cache/lklrun-remote/*.*")) // a constant pattern causes no error
				hit, _ := filepath.Glob(b.Path("/tmp/hit"))
				return len(names)+len(hit) == 0
			})
		})
	}
}

// TestSSHFull checks that lklrun reports full storage and the missing amount, and leaves
// nothing behind.
func TestSSHFull(t *testing.T) {
	b := newFarBox(t, kit.SSHD{Home: "size=4m"})
	r := kit.Run(t, sshLimit, b.lklrun(kit.SSHUser, "--", "true"))
	if r.Status != 2 || strings.Count(r.Stderr, "\n") != 1 || !strings.Contains(r.Stderr, "its storage is full: the bundle requires ") {
		t.Errorf("%v", r)
	}
	if names, _ := filepath.Glob(b.Path("/home/user/.cache/*")); len(names) > 0 {
		t.Errorf("left: %v", names)
	}
}
