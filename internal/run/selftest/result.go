// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/lazyregexp"
	"github.com/lklrun/lklrun/internal/base/text"
)

// An Outcome is how a test or a case has ended.
type Outcome string

// The outcomes. A case is known to fail if it does not pass on the baseline either.
const (
	Pass    Outcome = "ok"
	Fail    Outcome = "FAIL"
	Timeout Outcome = "TIMEOUT"
	Skip    Outcome = "skip"
	Known   Outcome = "known"
)

func (o Outcome) plural() string {
	return map[Outcome]string{Pass: "passed", Fail: "failed", Timeout: "timed out", Skip: "skipped", Known: "failed as on the baseline"}[o]
}

// bad reports whether the outcome is a failure.
func (o Outcome) bad() bool { return o == Fail || o == Timeout }

// A Case is one of the checks that a script reports.
type Case struct {
	Name    string
	Outcome Outcome
}

// A Result is the outcome of a test. Only tests that report their checks have cases.
type Result struct {
	Test    string
	Kernel  string
	Outcome Outcome
	Why     string // if it did not pass
	Cases   []Case
	Took    time.Duration
	Output  []byte
}

// Summarize counts the results of a kernel.
func Summarize(results []Result, kernel string) string {
	count := map[Outcome]int{}
	for i := range results {
		if results[i].Kernel == kernel {
			count[results[i].Outcome]++
		}
	}
	line := fmt.Sprintf("%d passed", count[Pass])
	for _, o := range []Outcome{Fail, Timeout, Known, Skip} {
		if count[o] > 0 {
			line += fmt.Sprintf(", %d %s", count[o], o.plural())
		}
	}
	return line
}

// Failed reports whether the test failed, other than on the baseline.
func (r *Result) Failed() bool { return r.Outcome.bad() }

// Failed returns the number of tests that failed, other than on the baseline.
func Failed(results []Result) (n int) {
	for i := range results {
		if results[i].Outcome.bad() {
			n++
		}
	}
	return n
}

// WriteLine writes a line about a result.
func WriteLine(w io.Writer, r *Result, withKernel bool) error {
	line := fmt.Sprintf("%-7s %6.1f s  %s", r.Outcome, r.Took.Seconds(), r.Test)
	if withKernel {
		line += " on " + r.Kernel
	}
	count := map[Outcome]int{}
	for _, c := range r.Cases {
		count[c.Outcome]++
	}
	if len(r.Cases) > 0 {
		line += fmt.Sprintf(" (%d of %d)", count[Pass], len(r.Cases))
	}
	if r.Why != "" {
		line += ": " + text.Plain(r.Why)
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// skipStatus is the exit status of a kernel selftest that cannot run (KSFT_SKIP).
const skipStatus = 4

// outcome returns the outcome of a test by its exit status; -1: killed by a signal.
func outcome(status int) Outcome {
	switch status {
	case 0:
		return Pass
	case skipStatus:
		return Skip
	}
	return Fail
}

var (
	tapLine    = lazyregexp.New(`^(not )?ok [0-9]+ ?(?:- )?([^#]*?)\s*(?:#\s*(.*))?$`)
	testLine   = lazyregexp.New(`^ *TEST: (.*?) +\[ *(OK|PASS|FAIL|SKIP|XFAIL) *\]$`)
	portNumber = lazyregexp.New(`:[0-9]+\)`) // mptcp_connect.sh counts its ports
)

// cases returns the checks that a script has reported: lines of the Test Anything Protocol, or
// "TEST: NAME [ OK ]". Lines with an indentation of TAP are parts of another check.
func cases(output []byte) (all []Case) {
	seen := map[string]int{}
	add := func(name string, o Outcome) {
		name = portNumber().ReplaceAllString(strings.Join(strings.Fields(name), " "), ")")
		seen[name]++
		if n := seen[name]; n > 1 {
			name = fmt.Sprintf("%s (%d)", name, n)
		}
		all = append(all, Case{name, o})
	}
	for line := range strings.Lines(string(output)) {
		line = strings.TrimRight(line, "\r\n")
		if m := tapLine().FindStringSubmatch(line); m != nil {
			o, directive := Pass, strings.ToUpper(m[3])
			switch {
			case strings.HasPrefix(directive, "SKIP"), strings.HasPrefix(directive, "TODO"), strings.HasPrefix(directive, "XFAIL"):
				o = Skip
			case m[1] != "":
				o = Fail
			}
			add(m[2], o)
		} else if m := testLine().FindStringSubmatch(line); m != nil {
			add(m[1], map[string]Outcome{"OK": Pass, "PASS": Pass, "FAIL": Fail}[m[2]])
			if last := &all[len(all)-1]; last.Outcome == "" {
				last.Outcome = Skip
			}
		}
	}
	return all
}

// checks returns the cases of a result, with the exit status of the script as one more.
func (r *Result) checks() []Case {
	own := r.Outcome
	if own == Known {
		own = Fail
	}
	return append(r.Cases[:len(r.Cases):len(r.Cases)], Case{"exit status", own})
}

// A Baseline is the checks that passed elsewhere, by test and case.
type Baseline map[[2]string]bool

// NewBaseline returns the checks that pass in all of the results that have them.
func NewBaseline(results []Result) Baseline {
	b := Baseline{}
	for i := range results {
		for _, c := range results[i].checks() {
			b.add(results[i].Test, c.Name, c.Outcome == Pass)
		}
	}
	return b
}

func (b Baseline) add(test, name string, passed bool) {
	key := [2]string{test, name}
	before, ok := b[key]
	b[key] = passed && (before || !ok)
}

// Judge changes the outcome of a test to Known unless it is a regression: a check fails that
// passes on the baseline. A script that fails only by checks that are known to fail is no
// regression, although its exit status is another.
func (b Baseline) Judge(r *Result) {
	if !r.Outcome.bad() {
		return
	}
	failed := 0
	for _, c := range r.Cases {
		if c.Outcome == Fail {
			failed++
			if b[[2]string{r.Test, c.Name}] {
				return
			}
		}
	}
	if failed > 0 && r.Outcome == Fail || !b[[2]string{r.Test, "exit status"}] {
		r.Outcome = Known
	}
}

// JUnit's format, as CI systems read it.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string     `xml:"classname,attr"`
		Name    string     `xml:"name,attr"`
		Time    string     `xml:"time,attr,omitempty"`
		Failure *junitText `xml:"failure"`
		Error   *junitText `xml:"error"`
		Skipped *junitText `xml:"skipped"`
	}
	junitText struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes the results of each kernel as a test suite.
func WriteJUnit(w io.Writer, kernels []string, results []Result) error {
	var doc junitSuites
	for _, k := range kernels {
		s := junitSuite{Name: k}
		for i := range results {
			if r := &results[i]; r.Kernel == k {
				s.add(r)
			}
		}
		doc.Suites = append(doc.Suites, s)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	return e.Encode(doc)
}

func (s *junitSuite) add(r *Result) {
	all := r.checks()
	for i, c := range all {
		j := junitCase{Class: r.Test, Name: c.Name}
		switch c.Outcome {
		case Skip:
			j.Skipped = &junitText{Message: r.Why}
			s.Skipped++
		case Fail, Timeout:
			j.Failure = &junitText{Message: r.Why}
			s.Failures++
			if r.Outcome == Known {
				j.Failure.Message = "also on the baseline: " + r.Why
			}
		}
		if i == len(all)-1 {
			j.Time = fmt.Sprintf("%.2f", r.Took.Seconds())
			if j.Failure != nil {
				j.Failure.Text = strings.ToValidUTF8(string(r.Output), "?")
			}
		}
		s.Cases = append(s.Cases, j)
	}
	s.Tests += len(all)
}

// ReadJUnit reads the results of an earlier run as a baseline.
func ReadJUnit(name string, r io.Reader) (Baseline, error) {
	var doc junitSuites
	if err := xml.NewDecoder(r).Decode(&doc); err != nil {
		return nil, exit.Usagef("%s: not JUnit results: %w", name, err)
	}
	b := Baseline{}
	for _, s := range doc.Suites {
		for _, c := range s.Cases {
			b.add(c.Class, c.Name, c.Failure == nil && c.Error == nil && c.Skipped == nil)
		}
	}
	if len(b) == 0 {
		return nil, exit.Usagef("%s: no test results", name)
	}
	return b, nil
}

// WriteTAP writes one line of the Test Anything Protocol.
func WriteTAP(w io.Writer, number int, r *Result) error {
	word, note := "ok", fmt.Sprintf("time=%dms", r.Took.Milliseconds())
	switch r.Outcome {
	case Fail, Timeout:
		word = "not ok"
	case Skip:
		note = "SKIP " + r.Why
	case Known:
		word, note = "not ok", "TODO fails on the baseline, too"
	}
	_, err := fmt.Fprintf(w, "%s %d - %s on %s # %s\n", word, number, r.Test, r.Kernel, note)
	return err
}
