// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// filesSuite is tests of a Debian package, of which each file runs in a process
// of its own. Except with preload, all of them share one run on the stack.
type filesSuite struct {
	label    string
	source   string   // the source package
	packages []string // binary packages, which are unpacked and not installed
	// inPackages says that the tests are in the binary packages, and the source is not needed.
	inPackages bool
	dir        string   // the directory of the source in which the tests run
	files      []string // patterns of the tests' files
	build      string   // for /bin/sh: run once in dir, before the tests
	command    string   // for /bin/sh: runs the file $1; $source and $root are the unpacked packages
	// single says that one program runs a file, so that preload can run it. $run before the program
	// is lklrun's command line then, and otherwise empty.
	single bool
	// cases finds the outcomes of single tests in a file's output. They count beside the
	// file, whose own name is "".
	cases func(out []byte) results
	// limit is how long a file may take that has many tests; 0: as long as one test.
	limit time.Duration

	where, root string
}

func (s *filesSuite) name() string { return s.label }

func (s *filesSuite) fetch(ctx context.Context, o options) error {
	if !s.inPackages {
		if err := fetchSource(ctx, o, s.source); err != nil {
			return err
		}
	}
	return fetchPackages(ctx, o, s.source, s.packages)
}

func (s *filesSuite) prepare(ctx context.Context, o options) error {
	s.root = packagesDir(o, s.source)
	if s.inPackages {
		s.where = s.root
		return nil
	}
	var err error
	if s.where, err = sourceDir(o, s.source); err != nil || s.build == "" {
		return err
	}
	stamp := filepath.Join(o.cache, s.label+".complete")
	if _, err := os.Stat(stamp); err == nil {
		return nil
	}
	if _, err := output(ctx, filepath.Join(s.where, s.dir), s.env(), "sh", "-ec", s.build); err != nil {
		return err
	}
	return os.WriteFile(stamp, nil, 0o644)
}

// env returns the environment of the suite's commands.
func (s *filesSuite) env() []string {
	return []string{"source=" + s.where, "root=" + s.root, "LD_LIBRARY_PATH=" + filepath.Join(s.root, "usr/lib/x86_64-linux-gnu")}
}

func (s *filesSuite) tests(context.Context) ([]string, error) {
	var names []string
	for _, pattern := range s.files {
		found, err := filepath.Glob(filepath.Join(s.where, s.dir, pattern))
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			name, err := filepath.Rel(filepath.Join(s.where, s.dir), f)
			if err != nil {
				return nil, err
			}
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: no tests there", filepath.Join(s.where, s.dir))
	}
	return names, nil
}

func (s *filesSuite) cannot(engine string) string {
	if engine == preload && !s.single {
		return "forks"
	}
	return ""
}

// eachFile runs the command $1 with the limit $2 for each of the other arguments, between
// two lines that name the file; the second has the exit status.
const eachFile = `command=$1 limit=$2; shift 2
for file; do
	printf '\n#begin %s\n' "$file"
	timeout -k 2 "$limit" sh -c "$command" sh "$file" </dev/null 2>&1
	printf '\n#end %s %d\n' "$file" $?
done`

func (s *filesSuite) run(ctx context.Context, m mode, done []string) (results, bool, error) {
	names, err := s.tests(ctx)
	if err != nil {
		return nil, false, err
	}
	for i, name := range done {
		done[i], _, _ = strings.Cut(name, "#")
	}
	todo := without(names, done)
	if len(todo) == 0 {
		return results{}, true, nil
	}
	args := append([]string{"sh", "-c", eachFile, "sh", s.command, strconv.Itoa(int(max(m.test, s.limit).Seconds()))}, todo...)
	env := s.env()
	if m.engine == preload {
		env = append(env, "run="+strings.Join(m.wrap(), " "))
	} else {
		args = m.wrap(args...)
	}
	var out bytes.Buffer
	_, err = m.start(ctx, m.suite, filepath.Join(s.where, s.dir), &out, env, args...)
	m.note(out.String())
	if err != nil && !errors.Is(err, errLimit) {
		return nil, false, err
	}
	got := fileResults(out.Bytes(), s.cases)
	_, complete := got[todo[len(todo)-1]]
	return got, complete, nil
}

var (
	fileBegin = regexp.MustCompile(`(?m)^#begin (.+)\n`)
	fileEnd   = regexp.MustCompile(`(?m)^#end (.+) ([0-9]+)\n`)
	// noNetwork is the error of socket() in a process that a program with preload has started.
	noNetwork = regexp.MustCompile(`ENETDOWN|[Nn]etwork is down|has no network`)
)

// fileResults parses the output of eachFile.
func fileResults(out []byte, cases func([]byte) results) results {
	got := results{}
	begins := fileBegin.FindAllSubmatchIndex(out, -1)
	for i, b := range begins {
		name, said := string(out[b[2]:b[3]]), out[b[1]:]
		if i+1 < len(begins) {
			said = out[b[1]:begins[i+1][0]]
		}
		end := fileEnd.FindSubmatch(said)
		if end == nil || string(end[1]) != name {
			got[name] = crash
			continue
		}
		file := results{"": fileOutcome(string(end[2]))}
		if cases != nil && file[""] != hang {
			maps.Copy(file, cases(said))
		}
		for c, what := range file {
			if what != pass && noNetwork.Match(said) {
				what = starts
			}
			if c != "" {
				c = "#" + c
			}
			got[name+c] = what
		}
	}
	return got
}

// fileOutcome translates the exit status of timeout(1).
func fileOutcome(status string) outcome {
	switch status {
	case "0":
		return pass
	case "124", "137":
		return hang
	}
	return fail
}

var (
	rubyLine = regexp.MustCompile(`(?m)^(?:\[[ 0-9/]+\] )?(\S+#\S+) = [0-9.]+ s$`)
	rubyBad  = regexp.MustCompile(`(?m)^ +[0-9]+\) (Failure|Error|Skipped|Timeout):\n(\S+#[^\s:\[]+)`)
	// If a test has a description, unittest prints it on a second line. The test's own output
	// comes before its outcome.
	unittestLine = regexp.MustCompile(`(?m)^(\w+) \(([\w.]+)\)(?:\n.*)? \.\.\. `)
	unittestEnd  = regexp.MustCompile(`(?m)(?:^|\.\.\. )(ok|FAIL|ERROR|skipped .*|expected failure)$`)
	erlangLine   = regexp.MustCompile(`(?m)^=(case|result) +(?:\w+:)?(\w+)`)
	phpLine      = regexp.MustCompile(`(?m)(?:^|\r)(PASS|FAIL|SKIP|XFAIL|BORK|LEAK|WARN)(?:&\w+)? .*\[[^]]+\]`)
	// nodeSkip is what test/common prints before it ends a test that cannot run here.
	nodeSkip = regexp.MustCompile(`(?m)^1\.\.0 # Skipped`)
)

// rubyCases parses the output of Ruby's runner.rb -v: a line for each test, and at the end
// the tests that did not pass.
func rubyCases(out []byte) results {
	got := results{}
	for _, l := range rubyLine.FindAllSubmatch(out, -1) {
		got[string(l[1])] = pass
	}
	for _, l := range rubyBad.FindAllSubmatch(out, -1) {
		got[string(l[2])] = fail
		if string(l[1]) == "Skipped" {
			got[string(l[2])] = skip
		}
	}
	return got
}

// unittestCases parses the output of Python's unittest -v.
func unittestCases(out []byte) results {
	got := results{}
	begins := unittestLine.FindAllSubmatchIndex(out, -1)
	for i, b := range begins {
		test, name, said := string(out[b[2]:b[3]]), string(out[b[4]:b[5]]), out[b[0]:]
		if i+1 < len(begins) {
			said = out[b[0]:begins[i+1][0]]
		}
		what := skip
		end := unittestEnd.FindSubmatch(said)
		switch {
		case end == nil:
			what = crash
		case string(end[1]) == "ok":
			what = pass
		case string(end[1]) == "FAIL" || string(end[1]) == "ERROR":
			what = fail
		}
		got[strings.TrimSuffix(name, "."+test)+"."+test] = what
	}
	return got
}

// erlangCases parses a log of Erlang's Common Test. A test runs in several groups.
func erlangCases(out []byte) results {
	got, times, name := results{}, map[string]int{}, ""
	for _, l := range erlangLine.FindAllSubmatch(out, -1) {
		word := string(l[2])
		if string(l[1]) == "case" {
			if times[word]++; times[word] > 1 {
				word = fmt.Sprintf("%s/%d", word, times[word])
			}
			name = word
		}
		if strings.HasPrefix(name, "init_per_") || strings.HasPrefix(name, "end_per_") {
			continue
		}
		switch word {
		case name:
			got[name] = crash // the next line may replace this
		case "ok":
			got[name] = pass
		case "failed":
			got[name] = fail
		default:
			got[name] = skip
		}
	}
	return got
}

// phpCases reads the verdict of run-tests.php about its one file.
func phpCases(out []byte) results {
	l := phpLine.FindSubmatch(out)
	switch {
	case l == nil:
		return results{"": fail}
	case string(l[1]) == "PASS":
		return results{"": pass}
	case string(l[1]) == "SKIP" || string(l[1]) == "XFAIL":
		return results{"": skip}
	}
	return results{"": fail}
}

// nodeCases recognises a test that has skipped itself.
func nodeCases(out []byte) results {
	if nodeSkip.Match(out) {
		return results{"": skip}
	}
	return nil
}

// packagesDir returns the directory into which fetchPackages unpacks.
func packagesDir(o options, source string) string { return filepath.Join(o.cache, source+".root") }

// fetchPackages downloads and unpacks binary packages of the Debian release, once.
func fetchPackages(ctx context.Context, o options, source string, packages []string) error {
	root := packagesDir(o, source)
	if _, err := os.Stat(root); err == nil || len(packages) == 0 {
		return nil
	}
	release, err := codename("/etc/os-release")
	if err != nil {
		return err
	}
	debs := root + ".debs"
	if err := errors.Join(os.RemoveAll(debs), os.MkdirAll(debs, 0o755)); err != nil {
		return err
	}
	get := []string{"apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download"}
	for _, p := range packages {
		get = append(get, p+"/"+release)
	}
	if _, err := output(ctx, debs, nil, get...); err != nil {
		return err
	}
	_, err = output(ctx, debs, nil, "sh", "-ec", `for d in *.deb; do dpkg-deb -x "$d" unpacked; done; mv unpacked "$1"`, "sh", root)
	return err
}
