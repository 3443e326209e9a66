// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// stackVerb runs `lklrun stack` with a folder for the user's data.
func stackVerb(data string, args ...string) *exec.Cmd {
	cmd := kit.Lklrun(append([]string{"stack"}, args...)...)
	cmd.Env = append(cmd.Environ(), "XDG_DATA_HOME="+data)
	return cmd
}

// TestStackVerbs lists, shows, checks and removes a stack of the user.
func TestStackVerbs(t *testing.T) {
	t.Parallel()
	data := kit.Dir(t)
	dir := filepath.Join(data, "lklrun/stacks/mine")
	library, err := filepath.EvalSymlinks(filepath.Join(kit.Bin("stacks"), "vanilla/liblkl.so"))
	kit.Must(t, err, os.MkdirAll(dir, 0o755), os.Symlink(library, filepath.Join(dir, "liblkl.so")))
	kit.WriteFile(t, filepath.Join(dir, "stack.json"), `{"name": "mine", "summary": "Linux 6.12", "abi": "native",
		"built": {"time": "2026-01-02T03:04:05Z", "source": "linux-source-6.12", "fixes": ["mptcp-idle-subflow"], "missing": ["other"]}}`)

	if out := kit.OK(t, kit.Limit, stackVerb(data, "list")); !strings.Contains(out, "mine ") || !strings.Contains(out, "mptcp *") {
		t.Errorf("stack list:\n%s", out)
	}
	testShadows(t, data, library)
	out := kit.OK(t, kit.Limit, stackVerb(data, "show", "mine"))
	for _, want := range []string{"linux-source-6.12", "mptcp-idle-subflow", "without fix", "other", dir} {
		if !strings.Contains(out, want) {
			t.Errorf("stack show lacks %q:\n%s", want, out)
		}
	}
	var facts struct {
		Kernel, ABI       string
		Congestion, Lacks []string
	}
	if err := json.Unmarshal([]byte(kit.OK(t, kit.Limit, stackVerb(data, "check", "mine", "-o", "json"))), &facts); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(facts.Kernel, "6.12.") || facts.ABI != "native" || len(facts.Lacks) > 0 || !strings.Contains(strings.Join(facts.Congestion, " "), "bbr") {
		t.Errorf("stack check: %+v", facts)
	}
	var shown struct {
		Offers struct{ Congestion, Qdiscs []string }
	}
	if err := json.Unmarshal([]byte(kit.OK(t, kit.Limit, stackVerb(data, "show", "mine", "-o", "json"))), &shown); err != nil {
		t.Fatal(err)
	}
	// The library says what it offers, and the running kernel offers the same.
	slices.Sort(facts.Congestion)
	if got := shown.Offers; !slices.Equal(got.Congestion, facts.Congestion) || !slices.Contains(got.Qdiscs, "fq") {
		t.Errorf("stack show says that it offers %+v; the stack offers %v", got, facts.Congestion)
	}
	kit.OK(t, kit.Limit, stackVerb(data, "remove", "mine"))
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("after stack remove: %v", err)
	}
	if r := kit.Run(t, kit.Limit, stackVerb(data, "show", "mine")); r.Status != 2 {
		t.Errorf("the removed stack: %v", r)
	}
}

// testShadows gives the user a stack with the name of one of lklrun's own, and the project
// another one.
func testShadows(t *testing.T, data, library string) {
	t.Helper()
	project, user := kit.Dir(t), filepath.Join(data, "lklrun/stacks")
	defer func() { kit.Must(t, os.RemoveAll(filepath.Join(user, "vanilla"))) }()
	for parent, ttl := range map[string]string{user: "11", project: "12"} {
		dir := filepath.Join(parent, "vanilla")
		kit.WriteFile(t, filepath.Join(dir, "stack.json"), `{"abi": "native", "summary": "other", "sysctls": {"net.ipv4.ip_default_ttl": "`+ttl+`"}}`)
		kit.Must(t, os.Symlink(library, filepath.Join(dir, "liblkl.so")))
	}
	ttl := func(project string) string {
		cmd := kit.Lklrun("-q", "--stack", "vanilla", "--", "cat", "/proc/sys/net/ipv4/ip_default_ttl")
		cmd.Env = append(cmd.Environ(), "XDG_DATA_HOME="+data, "LKLRUN_STACKS="+project)
		return strings.TrimSpace(kit.OK(t, kit.Limit, cmd))
	}
	for dir, want := range map[string]string{"": "11", project: "12"} {
		if got := ttl(dir); got != want {
			t.Errorf("with LKLRUN_STACKS=%s, the TTL is %s; expected %s", dir, got, want)
		}
	}
	cmd := stackVerb(data, "list")
	cmd.Env = append(cmd.Environ(), "LKLRUN_STACKS="+project)
	var origins []string
	for _, line := range kit.Lines(kit.OK(t, kit.Limit, cmd)) {
		if words := strings.Fields(line); words[0] == "vanilla" {
			origins = append(origins, strings.Join(words[3:len(words)-1], " "))
		}
	}
	if got := strings.Join(origins, "; "); !strings.HasPrefix(got, "project; user, shadowed; lklrun, shadowed") {
		t.Errorf("origins of vanilla: %s", got)
	}
}

// buildLimit is for the compilers: almost nothing if `make build` has built this kernel in
// the same cache, and ten minutes on a slow machine if it has not.
const buildLimit = 20 * time.Minute

// connected is the start of the function that the stack's kernel calls for each connection
// that a program of the stack establishes.
const connected = "void tcp_finish_connect(struct sock *sk, struct sk_buff *skb)\n{\n"

// A change replaces a text in a file of the kernel.
type change struct{ file, old, new string }

// patchOf returns changes of linux-source-6.12, which is installed below root, as a patch.
func patchOf(t *testing.T, root string, changes ...change) string {
	t.Helper()
	kit.Need(t, "diff", "tar", "xz")
	dir := kit.Dir(t)
	args := []string{"-xJf", filepath.Join(root, "usr/src/linux-source-6.12.tar.xz"), "--strip-components=1", "-C", dir}
	for _, c := range changes {
		args = append(args, "linux-source-6.12/"+c.file)
	}
	kit.OK(t, buildLimit, exec.Command("tar", args...))
	kit.Host.Run(t, "mv", dir+"/net", dir+"/a-net")
	var patch strings.Builder
	for _, c := range changes {
		old := filepath.Join(dir, "a-"+c.file)
		text := kit.ReadFile(t, old)
		if n := strings.Count(text, c.old); n != 1 {
			t.Fatalf("%s contains %q %d times; expected once", c.file, c.old, n)
		}
		changed := kit.WriteFile(t, filepath.Join(dir, c.file), strings.Replace(text, c.old, c.new, 1))
		cmd := exec.Command("diff", "-u", "--label", "a/"+c.file, "--label", "b/"+c.file, old, changed)
		r := kit.Run(t, kit.Limit, cmd)
		if r.Status != 1 {
			t.Fatalf("diff: %v", r)
		}
		patch.WriteString(r.Stdout)
	}
	return patch.String()
}

// TestStackBuild builds a stack with a patch, runs a program on it that sees the changes,
// and checks that builds that fail leave the stack as it is.
func TestStackBuild(t *testing.T) {
	kit.Need(t, "gcc", "make", "flex", "bison", "bc", "patch", "python3", "ss")
	data, dir := kit.Dir(t), kit.Dir(t)
	reordering := "\tnet->ipv4.sysctl_tcp_reordering = TCP_FASTRETRANS_THRESH;\n"
	text := patchOf(t, "/",
		change{"net/ipv4/tcp_ipv4.c", reordering, strings.Replace(reordering, "TCP_FASTRETRANS_THRESH", "7", 1)},
		change{"net/ipv4/tcp_input.c", "\n" + connected, "\n" + connected + "\tpr_info(\"the patch is here\\n\");\n"})
	patch := kit.WriteFile(t, filepath.Join(dir, "visible.patch"), text)
	kit.OK(t, buildLimit, stackVerb(data, "build", "--kernel", "6.12", "--patch", patch, "--name", "patched"))
	seesPatch(t, data, "patched", "the patch is here", "7")

	bad := kit.WriteFile(t, filepath.Join(dir, "bad.patch"), strings.ReplaceAll(text, "\n \t", "\n  \t"))
	unknown := kit.WriteFile(t, filepath.Join(dir, "unknown.config"), "CONFIG_TCP_CONG_BRB=y\n")
	selected := kit.WriteFile(t, filepath.Join(dir, "selected.config"), "# CONFIG_CRYPTO is not set\n")
	for _, c := range []struct{ option, file, want string }{
		{"--patch", bad, "bad.patch does not apply to Linux 6.12"},
		{"--patch", bad, "net/ipv4/tcp_ipv4.c: Hunk #1 FAILED"},
		{"--config", unknown, "CONFIG_TCP_CONG_BRB=y of " + unknown + " has no effect: Linux 6.12 does not have this option"},
		{"--config", selected, "# CONFIG_CRYPTO is not set of " + selected + " has no effect"},
	} {
		r := kit.Run(t, buildLimit, stackVerb(data, "build", "--kernel", "6.12", c.option, c.file, "--name", "patched"))
		if r.Status != 2 || !strings.Contains(r.Stderr, c.want) {
			t.Errorf("%s: %v", c.want, r)
		}
	}
	seesPatch(t, data, "patched", "the patch is here", "7")
	// The options of the builds that failed have no effect on this one.
	kit.OK(t, buildLimit, stackVerb(data, "build", "--kernel", "6.12", "--patch", patch, "--name", "patched"))
	seesPatch(t, data, "patched", "the patch is here", "7")
}

// seesPatch connects two sockets on a stack. The log must have the message, and ss and
// sysctl must show the reordering.
func seesPatch(t *testing.T, data, name, message, reordering string) {
	t.Helper()
	const connect = `import socket, time
l = socket.create_server(("127.0.0.1", 1)); c = socket.create_connection(("127.0.0.1", 1)); time.sleep(60)`
	run := kit.Lklrun("-q", "--detach", "--name", name, "--stack", name, "--", "python3", "-c", connect)
	run.Env = append(run.Environ(), "XDG_DATA_HOME="+data)
	kit.OK(t, kit.Limit, run)
	defer func() {
		kit.Lklctl(t, "stop", name)
		kit.Forget(t, name)
	}()
	kit.WaitFor(t, "the message of the patch", kit.Limit, func() bool {
		return strings.Contains(kit.Lklctl(t, "-n", name, "dmesg"), message)
	})
	if got := kit.Lklctl(t, "-n", name, "sysctl", "net.ipv4.tcp_reordering"); !strings.Contains(got, " = "+reordering+"\n") {
		t.Errorf("sysctl: %q", got)
	}
	if got := kit.Lklctl(t, "-n", name, "exec", "--", "ss", "-ti"); !strings.Contains(got, "reordering:"+reordering) {
		t.Errorf("ss -ti:\n%s", got)
	}
}
