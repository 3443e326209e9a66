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

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// smaller switches off what this test does not need, because each file takes its time.
const smaller = `# CONFIG_NETFILTER is not set
# CONFIG_NET_SCHED is not set
# CONFIG_BRIDGE is not set
`

// TestStackTree builds a linked worktree of git with an uncommitted change, which is
// mounted read-only. After the next change, the build compiles the changed file only.
func TestStackTree(t *testing.T) {
	kit.Need(t, "git", "tar", "xz", "gcc", "make", "flex", "bison", "bc", "patch", "python3", "ss")
	disk, err := os.MkdirTemp(filepath.Join(kit.Root(), "build"), "tree-")
	kit.Must(t, err)
	t.Cleanup(func() { kit.Must(t, os.RemoveAll(disk)) })
	data := filepath.Join(disk, "data")
	linux, tree := filepath.Join(disk, "linux"), filepath.Join(disk, "tree")
	git := func(dir string, args ...string) string {
		t.Helper()
		all := []string{"-C", dir, "-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"}
		return strings.TrimSpace(kit.OK(t, buildLimit, exec.Command("git", append(all, args...)...)))
	}
	// One commit with all files that the build reads.
	kit.Must(t, os.MkdirAll(linux, 0o755))
	kit.OK(t, buildLimit, exec.Command("tar", "-xJf", "/usr/src/linux-source-6.12.tar.xz", "--strip-components=1", "-C", linux,
		"--exclude=*/drivers/gpu/*.[chS]", "--exclude=*/drivers/net/ethernet/*.[ch]", "--exclude=*/drivers/net/wireless/*.[ch]",
		"--exclude=*/drivers/media/*.[ch]", "--exclude=*/Documentation/*.[rty]*", "--exclude=*/sound/*.[ch]", "--exclude=*/arch/*.dts*", "--exclude=*/tools/*.[ch]"))
	git(linux, "init", "-q")
	git(linux, "add", "-Af", ".")
	git(linux, "commit", "-qm", "Linux")
	git(linux, "tag", "v6.12-test")
	git(linux, "worktree", "add", "-q", tree)

	input := filepath.Join(tree, "net/ipv4/tcp_input.c")
	original := kit.ReadFile(t, input)
	change := func(message string) {
		t.Helper()
		text := strings.Replace(original, "\n"+connected, "\n"+connected+"\tpr_info(\""+message+"\\n\");\n", 1)
		if text == original {
			t.Fatalf("%s has no %q", input, connected)
		}
		kit.WriteFile(t, input, text)
	}
	options := kit.WriteFile(t, filepath.Join(disk, "smaller.config"), smaller)
	// All writes of the build and of git to the tree fail.
	build := func() (compiled []string) {
		t.Helper()
		for _, dir := range []string{linux, tree} {
			kit.Must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""), unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		}
		defer func() { kit.Must(t, unix.Unmount(linux, 0), unix.Unmount(tree, 0)) }()
		cmd := stackVerb(data, "build", "--kernel", tree, "--config", options, "--name", "tree")
		cmd.Env = append(cmd.Environ(), "XDG_CACHE_HOME="+filepath.Join(disk, "cache"))
		kit.OK(t, buildLimit, cmd)
		for _, line := range kit.Lines(kit.ReadFile(t, filepath.Join(disk, "cache/lklrun/stack-tree.log"))) {
			if file, ok := strings.CutPrefix(line, "  CC "); ok {
				compiled = append(compiled, strings.TrimSpace(file))
			}
		}
		return compiled
	}

	change("first-edit")
	before := git(tree, "status", "--porcelain")
	build()
	seesPatch(t, data, "tree", "first-edit", "3")
	change("second-edit")
	if compiled := build(); !slices.Contains(compiled, "net/ipv4/tcp_input.o") || len(compiled) > 5 {
		t.Errorf("after a change of tcp_input.c, the second build compiled %v", compiled)
	}
	seesPatch(t, data, "tree", "second-edit", "3")
	if after := git(tree, "status", "--porcelain"); after != before {
		t.Errorf("git status is %q; before the builds it was %q", after, before)
	}

	var shown struct {
		Built struct {
			Source, Commit string
			Dirty          bool
		}
		Offers struct{ Congestion, Qdiscs []string }
	}
	if err := json.Unmarshal([]byte(kit.OK(t, kit.Limit, stackVerb(data, "show", "tree", "-o", "json"))), &shown); err != nil {
		t.Fatal(err)
	}
	if b := shown.Built; b.Source != tree || b.Commit != "v6.12-test" || !b.Dirty {
		t.Errorf("stack show: %+v", b)
	}
	// The options that are off have an effect.
	if o := shown.Offers; !slices.Contains(o.Congestion, "bbr") || slices.Contains(o.Qdiscs, "cake") {
		t.Errorf("the stack offers %+v", o)
	}
}
