// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// passed returns how many of the tests that pass natively also pass on the stack, and how
// many pass natively and start no other process with preload. A test that is excluded only for this
// stack counts as not passed.
func (r row) passed(c column) (int, int) {
	n, of := 0, 0
	for name, what := range r.native {
		got := c.outcome(name)
		if what != pass || got == starts {
			continue
		}
		of++
		if got == pass {
			n++
		}
	}
	return n, of
}

// outcome returns the outcome of a test, or "" if it was not run. The tests of a file that ended
// early because it started a process were not run for that reason.
func (c column) outcome(name string) outcome {
	what := c.results[name]
	if file, _, ok := strings.Cut(name, "#"); ok && what == "" && c.results[file] == starts {
		return starts
	}
	return what
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
  in a process of its own. "namespaces" are programs that make network namespaces, which are the
  stack's only with the engine supervise.
- With preload, processes that the program starts have no network: their sockets fail with ENETDOWN.
  A test that fails with this error does not count there. The column names how many tests count.
- Some tests are not run at all:
  %[3]s lists them with the reasons.
  A test that is excluded for one stack counts as not passed.
- "measured" names the commit and the day of a row.

Host: Linux %[4]s.

`

// kept is what a page says of the suites that were not run now.
type kept struct {
	rows     map[string]string   // of the table
	failures map[string][]string // of the second table
}

// readKept reads a page. It keeps nothing of a page with other columns.
func readKept(page, header string) kept {
	k := kept{map[string]string{}, map[string][]string{}}
	if !strings.Contains(page, header) {
		return k
	}
	table, rest, _ := strings.Cut(page[strings.Index(page, header)+len(header):], "\n## ")
	second, _, _ := strings.Cut(rest, "\n## ")
	for line := range strings.Lines(table) {
		if name, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok {
			k.rows[name] = line
		}
	}
	for line := range strings.Lines(second) {
		if name, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok && strings.HasPrefix(line, "| ") {
			k.failures[name] = append(k.failures[name], line)
		}
	}
	return k
}

// difference returns the line of the second table for a test that passes natively and not on the stack,
// with the reason that differences.txt has for it.
func (r row) difference(c column, bad string, known []exclusion) string {
	i := strings.LastIndex(bad, " (")
	name, what := bad[:i], strings.Trim(bad[i:], " ()")
	why := reason(known, r.suite, c.place.String(), name)
	if why == "" {
		why = "not explained"
	}
	return fmt.Sprintf("| %s | %s | `%s` | %s | %s |\n", r.suite, c.place, name, what, why)
}

// writeTable writes the page. It replaces the rows of the suites that were run, and keeps the
// others.
func writeTable(o options, rows []row, excluded, known []exclusion) error {
	var b strings.Builder
	title, target, group := "Conformance", "conformance", allSuites
	if len(rows) > 0 && slices.ContainsFunc(runtimeSuites, func(s suite) bool { return s.name() == rows[0].suite }) {
		title, target, group = "Conformance of runtimes", "conformance-runtimes", runtimeSuites
	}
	if !slices.ContainsFunc(o.stacks, func(p place) bool { return p.engine != preload }) {
		title += " with preload"
	}
	fmt.Fprintf(&b, intro, title, target, "[exclusions.txt](../../test/conformance/exclusions.txt)", release())
	header := "| suite | measured | pass natively | left out |"
	for _, s := range o.stacks {
		header += fmt.Sprintf(" %s | excluded |", s)
	}
	header += "\n|---|---|---|---|" + strings.Repeat("---|---|", len(o.stacks)) + "\n"
	page, err := os.ReadFile(o.out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	k := readKept(string(page), header)
	var missing, all []string
	for _, s := range group {
		ran := slices.ContainsFunc(rows, func(r row) bool { return r.suite == s.name() })
		if ran || k.rows[s.name()] != "" {
			all = append(all, s.name())
		} else if why := s.cannot(o.stacks[0].engine); why != "" {
			missing = append(missing, fmt.Sprintf("%s (%s)", s.name(), why))
		} else {
			missing = append(missing, s.name())
		}
	}
	if len(missing) > 0 {
		fmt.Fprintf(&b, "Not run for this page:\n%s.\n\n", strings.Join(missing, ",\n"))
	}
	b.WriteString(header)
	for _, r := range rows {
		var line strings.Builder
		fmt.Fprintf(&line, "| %s | %s, %s | %d | %d |", r.suite, o.commit, time.Now().UTC().Format(time.DateOnly), r.native.count(pass), r.left)
		k.failures[r.suite] = nil
		for _, c := range r.stacks {
			for _, bad := range c.bad {
				k.failures[r.suite] = append(k.failures[r.suite], r.difference(c, bad, known))
			}
			if c.cannot != "" {
				fmt.Fprintf(&line, " %s | |", c.cannot)
				continue
			}
			n, of := r.passed(c)
			others := ""
			if of < r.native.count(pass) {
				others = fmt.Sprintf(" of %d", of)
			}
			fmt.Fprintf(&line, " %d%s, %.1f %% | %d |", n, others, percent(n, of), c.excluded)
		}
		k.rows[r.suite] = line.String() + "\n"
	}
	for _, name := range all {
		b.WriteString(k.rows[name])
	}
	b.WriteString("\n## What passes natively and not on a stack\n\n| suite | stack | test | outcome | reason |\n|---|---|---|---|---|\n")
	for _, name := range all {
		b.WriteString(strings.Join(k.failures[name], ""))
	}
	b.WriteString("\n## Excluded tests\n\n| suite | stack | test | reason |\n|---|---|---|---|\n")
	for _, e := range excluded {
		if concerns(e, all) {
			where := "all"
			if e.mode != "*" {
				where = "`" + e.mode + "`"
			}
			fmt.Fprintf(&b, "| %s | %s | `%s` | %s |\n", e.suite, where, e.test, e.reason)
		}
	}
	return os.WriteFile(o.out, []byte(b.String()), 0o644)
}

// concerns reports whether the exclusion's suite is among the suites.
func concerns(e exclusion, suites []string) bool {
	for _, name := range suites {
		if ok, _ := path.Match(e.suite, name); ok { // the pattern was checked
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
