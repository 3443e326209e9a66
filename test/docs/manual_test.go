// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// Patterns for a flag at the beginning of a line: in the help, and in the list of a
// manual page.
var (
	helpFlag = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z][a-z0-9-]*)`)
	listFlag = regexp.MustCompile(`(?m)^ {7}(?:-\w, )?--([a-z][a-z0-9-]*)`)
)

// TestManual renders each manual page. There must be no warning. Each flag of the help
// must begin a line of the page, and lists and tables of topics must keep their lines.
func TestManual(t *testing.T) {
	kit.Need(t, "man", kit.Bin("lklrun"), kit.Bin("lklctl"))
	dir := kit.Dir(t)
	for _, program := range []string{"lklrun", "lklctl"} {
		kit.OK(t, kit.Limit, exec.Command(kit.Bin(program), "man", dir))
		pages, err := filepath.Glob(filepath.Join(dir, program+"*"))
		if err != nil || len(pages) < 10 {
			t.Fatalf("%d pages of %s: %v", len(pages), program, err)
		}
		for _, page := range pages {
			text := render(t, page)
			words := strings.Split(strings.TrimSuffix(filepath.Base(page), filepath.Ext(page)), "-")
			switch {
			case filepath.Ext(page) == ".7":
				topic := strings.Join(words[1:], "-")
				keepsLines(t, page, text, kit.OK(t, kit.Limit, exec.Command(kit.Bin(program), "help", topic)))
			case page == filepath.Join(dir, "lklrun.1"):
				keepsFlags(t, page, text, kit.OK(t, kit.Limit, exec.Command(kit.Bin(program), "help", "flags")))
			default:
				help := kit.OK(t, kit.Limit, exec.Command(kit.Bin(program), append(words[1:], "--help")...))
				_, flags, _ := strings.Cut(help, "\nFlags:\n")
				keepsFlags(t, page, text, flags)
			}
		}
	}
}

// render returns a page as text, and fails the test if there is a warning.
func render(t *testing.T, page string) string {
	t.Helper()
	cmd := exec.Command("man", "--warnings", "-E", "UTF-8", "-l", page)
	cmd.Env = append(cmd.Environ(), "LC_ALL=C.UTF-8", "MANROFFSEQ=", "MANWIDTH=80", "MAN_KEEP_FORMATTING=", "PAGER=cat")
	r := kit.Run(t, kit.Limit, cmd)
	if r.Status != 0 || r.Stderr != "" {
		t.Errorf("%s: status %d: %s", filepath.Base(page), r.Status, r.Stderr)
	}
	return strings.NewReplacer("‐", "-", "−", "-", "’", "'", "‘", "'").Replace(r.Stdout)
}

// keepsFlags checks that the flags of the help, and all items of the page's lists, begin
// a line of the page each.
func keepsFlags(t *testing.T, page, text, help string) {
	t.Helper()
	_, list, _ := strings.Cut(text, "\nOPTIONS\n")
	listed := map[string]bool{}
	for _, m := range listFlag.FindAllStringSubmatch(list, -1) {
		if listed[m[1]] {
			t.Errorf("%s: --%s begins two lines", filepath.Base(page), m[1])
		}
		listed[m[1]] = true
	}
	if items := strings.Count(kit.ReadFile(t, page), "\n.TP\n"); items != len(listed) {
		t.Errorf("%s: %d items, but %d lines that begin with a flag", filepath.Base(page), items, len(listed))
	}
	for _, m := range helpFlag.FindAllStringSubmatch(help, -1) {
		if !listed[m[1]] {
			t.Errorf("%s: --%s begins no line of the list", filepath.Base(page), m[1])
		}
	}
}

// keepsLines checks that each indented line of a topic is a line of the page.
func keepsLines(t *testing.T, page, text, topic string) {
	t.Helper()
	lines := map[string]bool{}
	for line := range strings.Lines(text) {
		lines[strings.TrimSpace(line)] = true
	}
	for line := range strings.Lines(topic) {
		if strings.HasPrefix(line, "  ") && !lines[strings.TrimSpace(line)] {
			t.Errorf("%s: no line %q", filepath.Base(page), strings.TrimSpace(line))
		}
	}
}
