// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
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
	out := kit.OK(t, kit.Limit, stackVerb(data, "show", "mine"))
	for _, want := range []string{"linux-source-6.12", "mptcp-idle-subflow", "without fix  other", dir} {
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
	kit.OK(t, kit.Limit, stackVerb(data, "remove", "mine"))
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("after stack remove: %v", err)
	}
	if r := kit.Run(t, kit.Limit, stackVerb(data, "show", "mine")); r.Status != 2 {
		t.Errorf("the removed stack: %v", r)
	}
}

// buildLimit is for the compilers: almost nothing if `make build` has built this kernel in
// the same cache, and ten minutes on a slow machine if it has not.
const buildLimit = 20 * time.Minute

// visible changes the default of a setting, and reports connections in the kernel log.
const visible = `--- a/net/ipv4/tcp_ipv4.c
+++ b/net/ipv4/tcp_ipv4.c
@@ -LINE,1 +LINE,1 @@
-	net->ipv4.sysctl_tcp_slow_start_after_idle = 1; /* By default, RFC2861 behavior.  */
+	net->ipv4.sysctl_tcp_slow_start_after_idle = 0; /* By default, RFC2861 behavior.  */
`

// TestStackBuild builds a stack with a patch, runs a program on it that sees the change,
// and checks that a patch that does not apply leaves the stack as it is.
func TestStackBuild(t *testing.T) {
	kit.Need(t, "gcc", "make", "flex", "bison", "bc", "patch")
	data, dir := kit.Dir(t), kit.Dir(t)
	tar := exec.Command("sh", "-c", "tar -xJOf /usr/src/linux-source-6.12.tar.xz linux-source-6.12/net/ipv4/tcp_ipv4.c | grep -n 'sysctl_tcp_slow_start_after_idle = 1;' | cut -d: -f1")
	at := strings.TrimSpace(kit.OK(t, buildLimit, tar))
	patch := kit.WriteFile(t, filepath.Join(dir, "visible.patch"), strings.ReplaceAll(visible, "LINE", at))
	kit.OK(t, buildLimit, stackVerb(data, "build", "--kernel", "6.12", "--patch", patch, "--name", "patched"))

	run := func() string {
		cmd := kit.Lklrun("-q", "--stack", "patched", "--", "cat", "/proc/sys/net/ipv4/tcp_slow_start_after_idle")
		cmd.Env = append(cmd.Environ(), "XDG_DATA_HOME="+data)
		return strings.TrimSpace(kit.OK(t, kit.Limit, cmd))
	}
	if got := run(); got != "0" {
		t.Errorf("the setting on the patched stack is %s", got)
	}
	bad := kit.WriteFile(t, filepath.Join(dir, "bad.patch"), strings.ReplaceAll(strings.ReplaceAll(visible, "LINE", at), "RFC2861", "RFC 2861"))
	r := kit.Run(t, buildLimit, stackVerb(data, "build", "--kernel", "6.12", "--patch", bad, "--name", "patched"))
	if r.Status != 2 || !strings.Contains(r.Stderr, "bad.patch does not apply to Linux 6.12") || !strings.Contains(r.Stderr, "net/ipv4/tcp_ipv4.c: Hunk #1 FAILED") {
		t.Errorf("%v", r)
	}
	if got := run(); got != "0" {
		t.Errorf("after a failed build, the setting on the patched stack is %s", got)
	}
}
