// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// passed returns how many of the tests that pass natively also pass on the stack, and how
// many pass natively. A test that is excluded only for this stack counts as not passed.
func (r row) passed(c column) (int, int) {
	n, of := 0, 0
	for name, what := range r.native {
		if what != pass {
			continue
		}
		of++
		if c.results[name] == pass {
			n++
		}
	}
	return n, of
}

// percent returns n as a percentage of of.
func percent(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return 100 * float64(n) / float64(of)
}

// print prints the row as soon as its results are known.
func (r row) print(w io.Writer) {
	for _, c := range r.stacks {
		if c.cannot != "" {
			fmt.Fprintf(w, "%-16s %-15s not run: %s\n", r.suite, c.place, c.cannot)
			continue
		}
		n, of := r.passed(c)
		fmt.Fprintf(w, "%-16s %-15s %d of %d, %.1f %%, %d excluded\n", r.suite, c.place, n, of, percent(n, of), c.excluded)
		for _, b := range c.bad {
			fmt.Fprintf(w, "    %s\n", b)
		}
	}
}

// verdict describes the failures of the row, or returns "".
func (r row) verdict() string {
	for _, c := range r.stacks {
		if c.cannot != "" {
			continue
		}
		if n := c.count(hang, crash); n > 0 {
			return fmt.Sprintf("%s on %s: %d tests hung or crashed", r.suite, c.place, n)
		}
		if n, of := r.passed(c); of == 0 || percent(n, of) < enough[c.engine] {
			return fmt.Sprintf("%s on %s: %d of %d pass, less than %.0f %%", r.suite, c.place, n, of, enough[c.engine])
		}
	}
	return ""
}

const intro = `# %[1]s

` + "`make %[2]s`" + ` writes this page. It runs the test suites of other projects
natively and on the stacks of this project.

- "Natively" means on the host's own kernel, in a namespace that has only a loopback interface.
- On a stack, the same program runs under ` + "`lklrun --stack NAME`" + `, with the engine supervise, or with
  trace or preload if the column says so.
- A column shows how many of the tests that pass natively also pass there. A test that hangs,
  crashes or is skipped does not pass.
- "static" programs cannot load a library. "forks" are programs that run each test, or its servers,
  in a process of its own.
- Some tests are not run at all:
  %[3]s lists them with the reasons.
  A test that is excluded for one stack counts as not passed.

Host: Linux %[4]s. Commit: %[5]s.

`

// writeTable writes the page.
func writeTable(o options, rows []row, excluded []exclusion) error {
	var b strings.Builder
	title, target, group := "Conformance", "conformance", allSuites
	if len(rows) > 0 && slices.ContainsFunc(runtimeSuites, func(s suite) bool { return s.name() == rows[0].suite }) {
		title, target, group = "Conformance of runtimes", "conformance-runtimes", runtimeSuites
	}
	fmt.Fprintf(&b, intro, title, target, "[exclusions.txt](../../test/conformance/exclusions.txt)", release(), o.commit)
	var missing []string
	for _, s := range group {
		if !concerns(exclusion{suite: s.name()}, rows) {
			missing = append(missing, s.name())
		}
	}
	if len(missing) > 0 {
		fmt.Fprintf(&b, "Not run for this page:\n%s.\n\n", strings.Join(missing, ",\n"))
	}
	b.WriteString("| suite | pass natively | left out |")
	for _, s := range o.stacks {
		fmt.Fprintf(&b, " %s | excluded |", s)
	}
	b.WriteString("\n|---|---|---|" + strings.Repeat("---|---|", len(o.stacks)) + "\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %d | %d |", r.suite, r.native.count(pass), r.left)
		for _, c := range r.stacks {
			if c.cannot != "" {
				fmt.Fprintf(&b, " %s | |", c.cannot)
				continue
			}
			n, of := r.passed(c)
			fmt.Fprintf(&b, " %d, %.1f %% | %d |", n, percent(n, of), c.excluded)
		}
		b.WriteString("\n")
	}
	b.WriteString("\n## What passes natively and not on a stack\n\n")
	for _, r := range rows {
		for _, c := range r.stacks {
			for _, bad := range c.bad {
				fmt.Fprintf(&b, "* %s, %s: `%s`\n", r.suite, c.place, bad)
			}
		}
	}
	b.WriteString("\n## Excluded tests\n\n| suite | stack | test | reason |\n|---|---|---|---|\n")
	for _, e := range excluded {
		if concerns(e, rows) {
			where := "all"
			if e.mode != "*" {
				where = "`" + e.mode + "`"
			}
			fmt.Fprintf(&b, "| %s | %s | `%s` | %s |\n", e.suite, where, e.test, e.reason)
		}
	}
	return os.WriteFile(o.out, []byte(b.String()), 0o644)
}

// concerns reports whether the exclusion's suite is among the rows.
func concerns(e exclusion, rows []row) bool {
	for _, r := range rows {
		if ok, _ := path.Match(e.suite, r.suite); ok { // the pattern was checked
			return true
		}
	}
	return false
}

// release returns the release of the host kernel, without distributors' suffixes.
func release() string {
	var u syscall.Utsname
	if syscall.Uname(&u) != nil {
		return "of unknown release"
	}
	var b strings.Builder
	for _, c := range u.Release {
		if c != '.' && (c < '0' || c > '9') {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}
