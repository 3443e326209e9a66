// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// selftests are tests of a kernel tree. The scripts reach for what a test must not change.
var selftests = map[string]string{
	"Makefile": "TEST_PROGS := device.sh netns.sh counters.sh checks.sh skip.sh escape.sh\n",
	"device.sh": `ip link add dum0 type dummy && ip addr add 192.0.2.1/24 dev dum0 && ip link set dum0 up || exit
ip route get 192.0.2.9 | grep -w dum0`,
	"netns.sh": `ip netns add one && ip link add ve0 type veth peer ve1 netns one || exit
ip addr add 192.0.2.1/24 dev ve0 && ip link set ve0 up || exit
ip -n one addr add 192.0.2.2/24 dev ve1 && ip -n one link set ve1 up || exit
ping -c 1 -w 10 192.0.2.2`,
	"counters.sh": "nstat -n && nstat", // a file of root in /tmp holds the host's history
	"checks.sh":   `echo "ok 1 - good"; echo "not ok 2 - bad"; echo "TEST: other [ OK ]"; exit 1`,
	"skip.sh":     "echo no hardware; exit 4",
	"escape.sh": `cd "$(dirname "$0")" || exit
echo changed >Makefile && echo changed >/tmp/mark-of-a-test && grep -q changed Makefile || exit
echo changed >"$(cat victim.dir)/mark"
for f in /etc/mark /usr/mark /var/mark; do
	! echo changed 2>&- >"$f" || { echo "wrote $f"; exit 1; }
done
! echo changed 2>&- >/proc/sys/kernel/domainname || { echo "changed a sysctl"; exit 1; }
! mount -o remount,bind,rw / 2>&- || { echo "remounted /"; exit 1; }
! grep -q victim-of-a-tes[t] /proc/[0-9]*/cmdline || { echo "sees a process"; exit 1; }`,
	"hang.sh": "sleep 600 & sleep 600",
}

// testTree makes a kernel tree with these tests, and a stack that was built from it.
func testTree(t *testing.T, uid int) (tree, stack string) {
	t.Helper()
	tree, stack = filepath.Join(kit.Dir(t), fmt.Sprint("tree", uid)), filepath.Join(kit.Dir(t), fmt.Sprint("of", uid), "tried")
	dir := filepath.Join(tree, "tools/testing/selftests/net/mine")
	kit.Must(t, os.MkdirAll(dir, 0o755), os.MkdirAll(stack, 0o755))
	for name, text := range selftests {
		kit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	}
	kit.Must(t, os.WriteFile(filepath.Join(dir, "victim.dir"), []byte(tree), 0o644),
		os.Symlink(kit.Bin("stacks/vanilla/liblkl.so"), filepath.Join(stack, "liblkl.so")),
		os.WriteFile(filepath.Join(stack, "stack.json"), fmt.Appendf(nil, `{"name": "tried", "summary": "a stack under test", "kernel": "6.12",
			"abi": "native", "library": "liblkl.so", "built": {"time": "2026-01-01T00:00:00Z", "source": %q}}`, tree), 0o644))
	kit.OK(t, kit.Limit, exec.Command("chown", "-R", fmt.Sprintf("%d:%[1]d", uid), tree))
	return tree, stack
}

// TestSelftests checks the outcomes of scripts, and that they change nothing outside.
func TestSelftests(t *testing.T) {
	kit.Need(t, "ip", "nstat", "ping", "setpriv")
	kit.Start(t, exec.Command("bash", "-c", "exec -a victim-of-a-test sleep 600"))
	kit.Must(t, os.WriteFile("/tmp/.nstat.u0", nil, 0o600))
	for _, uid := range []int{0, kit.Nobody} {
		tree, stack := testTree(t, uid)
		results := filepath.Join(kit.Dir(t), fmt.Sprint("results", uid))
		kit.Must(t, os.Mkdir(results, 0o777), os.Chmod(results, 0o777))
		junit := filepath.Join(results, "junit.xml")
		run := func(args ...string) kit.Result {
			cmd := kit.Lklrun(append([]string{"test", "--stack", stack}, args...)...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
			cmd.Env = append(os.Environ(), "HOME="+results)
			return kit.Run(t, kit.Limit, cmd)
		}
		r := run("--results", results, "--junit", junit, "net/mine")
		for _, want := range []string{
			"ok .* net/mine/device.sh", "ok .* net/mine/netns.sh", "ok .* net/mine/counters.sh", "ok .* net/mine/escape.sh",
			`FAIL .* net/mine/checks.sh \(2 of 3\): not ok 2 - bad`, "skip .* net/mine/skip.sh: no hardware",
			`.*/tried \(Linux 6.12\): 4 passed, 1 failed, 1 skipped`, `6 tests in .* s`,
		} {
			if !regexp.MustCompile("(?m)^" + want + "$").MatchString(r.Stdout) {
				t.Errorf("uid %d: no line %q in %v", uid, want, r)
			}
		}
		if r.Status != 1 || len(kit.Lines(r.Stdout)) != 8 || r.Stderr != "lklrun: 1 test failed\n" {
			t.Errorf("uid %d: %v", uid, r)
		}
		log, err := os.ReadFile(filepath.Join(results, stack, "net/mine/checks.sh.log"))
		if err != nil || !strings.Contains(string(log), "TEST: other [ OK ]") {
			t.Errorf("uid %d: the log is %q, %v", uid, log, err)
		}
		text, err := os.ReadFile(filepath.Join(tree, "tools/testing/selftests/net/mine/Makefile"))
		if err != nil || string(text) != selftests["Makefile"] {
			t.Errorf("uid %d: a test has changed the tree: %q, %v", uid, text, err)
		}
		for _, mark := range []string{"/tmp/mark-of-a-test", filepath.Join(tree, "mark")} {
			if _, err := os.Stat(mark); err == nil {
				t.Errorf("uid %d: a test has made %s", uid, mark)
			}
		}
		if r := run("--baseline", junit, "--tap", "net/mine:checks.sh"); r.Status != 0 || !strings.HasPrefix(r.Stdout, "TAP version 13\n1..1\nnot ok 1 - net/mine/checks.sh on "+stack+" (Linux 6.12) # TODO ") {
			t.Errorf("uid %d: with a baseline: %v", uid, r)
		}
		before := kit.Take(t)
		start := time.Now()
		if r := run("--timeout", "2s", "net/mine:hang.sh", "net/mine:netns.sh"); r.Status != 1 || !strings.Contains(r.Stdout, "TIMEOUT ") {
			t.Errorf("uid %d: %v", uid, r)
		}
		if took := time.Since(start); took > kit.Limit/2 {
			t.Errorf("uid %d: ended after %s", uid, took)
		}
		before.Same()
	}
}

// TestSelftestRegression checks that a check that passes on the baseline fails the run.
func TestSelftestRegression(t *testing.T) {
	tree, stack := testTree(t, 0)
	junit := filepath.Join(kit.Dir(t), "junit.xml")
	run := func(args ...string) kit.Result {
		return kit.Run(t, kit.Limit, kit.Lklrun(append([]string{"test", "--stack", stack, "net/mine:checks.sh"}, args...)...))
	}
	if r := run("--junit", junit); r.Status != 1 {
		t.Errorf("%v", r)
	}
	kit.Must(t, os.WriteFile(filepath.Join(tree, "tools/testing/selftests/net/mine/checks.sh"), []byte(`echo "not ok 1 - good"; exit 1`), 0o755))
	if r := run("--baseline", junit); r.Status != 1 || !strings.HasPrefix(r.Stdout, "FAIL ") {
		t.Errorf("%v", r)
	}
}

// TestSelftestPackets checks that a program such as packetdrill speaks with the stack through a
// tun device, in virtual time, that the commands of its script reach the same stack and not the
// host, and that a test ends if it would leave virtual time.
func TestSelftestPackets(t *testing.T) {
	kit.Need(t, "/usr/bin/python3")
	dir := kit.Dir(t)
	drill := filepath.Join(dir, "packetdrill")
	script := filepath.Join(kit.Root(), "test/kernels/testdata/drill.py")
	kit.Must(t, os.WriteFile(drill, []byte("#!/bin/sh\nexec /usr/bin/python3 "+script+` "$@"`+"\n"), 0o755))
	const sizes = "/proc/sys/net/ipv4/tcp_rmem"
	before, err := os.ReadFile(sizes)
	kit.Must(t, err)
	for name, script := range map[string]string{
		"right":  "`sysctl -q net.ipv4.tcp_rmem=\"4096 40000 80000\"`\n> S. win 18980\n",
		"wrong":  "`echo 4096 40000 80000 >" + sizes + "; grep -w 40000 " + sizes + "`\n> S. win 20000\n",
		"spaces": "`unshare -n true`\n",
	} {
		kit.Must(t, os.WriteFile(filepath.Join(dir, name+".pkt"), []byte(script), 0o644))
	}
	r := kit.Run(t, kit.Limit, kit.Lklrun("test", "--packetdrill", drill, dir))
	for _, want := range []string{"ok .* right.pkt/ipv4", "skip .* right.pkt/ipv6: only IPv4", "FAIL .* wrong.pkt/ipv4: wrong.pkt:3: flags 0x12, window 18980",
		"FAIL .* spaces.pkt/ipv4: lklvirtual: .*: the system call unshare is not supported in virtual time"} {
		if !regexp.MustCompile("(?m)^" + want + "$").MatchString(r.Stdout) {
			t.Errorf("no line %q in %v", want, r)
		}
	}
	if after, err := os.ReadFile(sizes); r.Status != 1 || err != nil || string(after) != string(before) {
		t.Errorf("%v; %s is %q, was %q", r, sizes, after, before)
	}
}

// TestSelftestUsage checks what is refused, in one line.
func TestSelftestUsage(t *testing.T) {
	_, stack := testTree(t, 0)
	bad := filepath.Join(kit.Dir(t), "bad.xml")
	kit.Must(t, os.WriteFile(bad, []byte("ok 1"), 0o644))
	for _, test := range []struct {
		args  []string
		names string
	}{
		{nil, "no suite"},
		{[]string{"net/none"}, "net/none"},
		{[]string{"net/mine:none"}, "no such test"},
		{[]string{"--stack", stack, "net/mine"}, "given twice"},
		{[]string{"-j", "0", "net/mine"}, "--jobs 0"},
		{[]string{"--timeout", "-1s", "net/mine"}, "--timeout"},
		{[]string{"--baseline", bad, "net/mine"}, "bad.xml"},
		{[]string{"--kernel", "none", "net/mine"}, "--kernel none"},
		{[]string{"--packetdrill", "/nowhere/packetdrill", "packetdrill"}, "/nowhere/packetdrill"},
	} {
		r := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklrun"), append([]string{"test", "--stack", stack}, test.args...)...))
		kit.OneLine(t, r, 2, test.names)
	}
}
