// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestStackSourceDoesNotFit checks that third_party/lkl refuses a kernel source that its
// patches do not fit, and names the file. Without this check, a patch could damage
// another version of a function. None of these builds gets as far as the compiler.
func TestStackSourceDoesNotFit(t *testing.T) {
	t.Parallel()
	kit.Need(t, "make", "gcc", "patch")
	source := kit.Dir(t)
	builds := func(want ...string) {
		t.Helper()
		dir := kit.Dir(t)
		cmd := exec.Command("make", "-s", "-C", filepath.Join(kit.Root(), "third_party/lkl"), "LINUX_SOURCE="+source, "OUT="+dir)
		cmd.Env = append(cmd.Environ(), "XDG_CACHE_HOME="+dir)
		r := kit.Run(t, kit.Limit, cmd)
		var said []string
		for _, line := range strings.Split(r.Stderr, "\n") {
			if line != "" && !strings.HasPrefix(line, "make") {
				said = append(said, line)
			}
		}
		if r.Status != 2 || len(said) != 1 {
			t.Errorf("%v", r)
		}
		for _, w := range append(want, "lkl: ", source) {
			if !strings.Contains(r.Stderr, w) {
				t.Errorf("%q is not said in %q", w, said)
			}
		}
	}
	version := func(major, minor string) {
		kit.WriteFile(t, filepath.Join(source, "Makefile"), "VERSION = "+major+"\nPATCHLEVEL = "+minor+"\n")
	}
	builds("is no kernel source")
	kit.WriteFile(t, filepath.Join(source, "Kbuild"), "")
	kit.WriteFile(t, filepath.Join(source, "Makefile"), "")
	builds("has no VERSION and PATCHLEVEL")
	version("5", "4")
	builds("is Linux 5.4: expected 6.1 or later")
	version("6", "12")
	kit.WriteFile(t, filepath.Join(source, ".config"), "")
	builds("contains a build (.config)", "mrproper")
	if err := os.Remove(filepath.Join(source, ".config")); err != nil {
		t.Fatal(err)
	}
	builds("has no net/mptcp/protocol.h, which arch/lkl/drivers/halt_reset.c includes")
	for file, words := range needs(t) {
		kit.WriteFile(t, filepath.Join(source, file), words)
	}
	builds("has no net/mptcp/subflow.c, which mptcp-fallback-mapping.patch mends")
	kit.WriteFile(t, filepath.Join(source, "net/mptcp/subflow.c"), "static bool subflow_check_data_avail(struct sock *ssk)\n{\n\treturn true;\n}\n")
	builds("subflow_check_data_avail() in", "mptcp-fallback-mapping.patch mends", "patches/6.12/series")
}

// needs returns what the architecture needs of the kernel's files.
func needs(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, line := range kit.Lines(kit.ReadFile(t, filepath.Join(kit.Root(), "third_party/lkl/arch/lkl/needs"))) {
		if words := strings.Fields(line); words[0] != "#" {
			all[words[1]] += strings.ReplaceAll(strings.Join(words[2:], "\n"), "|", "\n") + "\n"
		}
	}
	if len(all["net/mptcp/protocol.h"]) == 0 {
		t.Fatalf("arch/lkl/needs: %v", all)
	}
	return all
}

// TestStackUnfit gives `lklrun stack build` and `lklrun stack check` what they cannot
// build. Each gets one line, and nothing is made.
func TestStackUnfit(t *testing.T) {
	t.Parallel()
	kit.Need(t, "gcc", "patch")
	data, dir := kit.Dir(t), kit.Dir(t)
	tree := func(name, version string, files map[string]string) string {
		major, minor, _ := strings.Cut(version, ".")
		path := filepath.Join(dir, name)
		kit.WriteFile(t, filepath.Join(path, "Kbuild"), "")
		kit.WriteFile(t, filepath.Join(path, "Makefile"), "VERSION = "+major+"\nPATCHLEVEL = "+minor+"\n")
		for file, text := range files {
			kit.WriteFile(t, filepath.Join(path, file), text)
		}
		return path
	}
	changed := needs(t)
	changed["net/mptcp/protocol.h"] = strings.Replace(changed["net/mptcp/protocol.h"], "allow_subflows\n", "may_join\n", 1)
	empty := filepath.Join(dir, "empty")
	kit.Must(t, os.Mkdir(empty, 0o755))
	file := kit.WriteFile(t, filepath.Join(dir, "file"), "CONFG_X=y\n")
	for _, c := range []struct{ kernel, want string }{
		{tree("old", "5.4", needs(t)), "old is Linux 5.4: expected 6.1 or later"},
		{empty, "empty is no kernel source"},
		{filepath.Join(dir, "none"), "the directory does not exist"},
		{file, "file: not a directory"},
		{tree("other", "6.18", nil), "other has no net/mptcp/protocol.h, which arch/lkl/drivers/halt_reset.c includes: change the include"},
		{tree("changed", "6.18", changed), "changed/net/mptcp/protocol.h has no allow_subflows, which arch/lkl/drivers/proc_mptcp_join.c uses: map its new name in arch/lkl/include/asm/lkl_compat.h"},
		{tree("built", "6.18", map[string]string{".config": ""}), "built contains a build (.config)"},
	} {
		want := regexp.QuoteMeta(c.want)
		kit.OneLine(t, kit.Run(t, kit.Limit, stackVerb(data, "build", "--kernel", c.kernel, "--name", "n")), 2, want)
		if st, err := os.Stat(c.kernel); err == nil && st.IsDir() {
			kit.OneLine(t, kit.Run(t, kit.Limit, stackVerb(data, "check", c.kernel)), 2, want)
		}
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{`--config .*file:1: "CONFG_X=y"; expected CONFIG_NAME=VALUE`, []string{"--config", file}},
		{"--config .*none: no such file", []string{"--config", filepath.Join(dir, "none")}},
		{"--patch .*empty: not a file", []string{"--patch", empty}},
		{`--name "a/b": expected a name`, []string{"--name", "a/b"}},
		{"--like: no stack", []string{"--like", "nothing"}},
	} {
		kit.OneLine(t, kit.Run(t, kit.Limit, stackVerb(data, append([]string{"build", "--name", "n"}, c.args...)...)), 2, c.want)
	}
	full := kit.Dir(t)
	kit.Host.Run(t, "mount", "-n", "-t", "tmpfs", "-o", "size=1m", "small", full)
	t.Cleanup(func() { kit.Host.Run(t, "umount", "-n", full) })
	for variable, want := range map[string]string{"XDG_CACHE_HOME": "tar: ", "XDG_DATA_HOME": "cp: "} {
		cmd := stackVerb(data, "build", "--kernel", "6.12", "--name", "n")
		cmd.Env = append(cmd.Env, variable+"="+full)
		r := kit.Run(t, buildLimit, cmd)
		r.Stderr = regexp.MustCompile("(?m)^lklrun: unpack .*\n").ReplaceAllString(r.Stderr, "")
		kit.OneLine(t, r, 1, "because a disk is full: "+want+".*: No space left on device; free some space")
		kit.Host.Run(t, "rm", "-rf", full+"/lklrun/stacks")
		if left, err := filepath.Glob(full + "/lklrun/linux-*[0-9]"); err != nil || len(left) > 0 {
			t.Errorf("%s: a full disk: the kernel in %v would be used again, %v", variable, left, err)
		}
	}
	if made, err := os.ReadDir(filepath.Join(data, "lklrun/stacks")); err == nil && len(made) > 0 {
		t.Errorf("builds that were refused have left %v", made)
	}
}
