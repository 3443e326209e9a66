// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// curlSuite is curl's own tests of HTTP, with its own servers. All of them share one run
// on the stack, and each starts its own curl.
type curlSuite struct {
	source, build string // their directories "tests"
}

const (
	curlPackage = "curl"
	curlLast    = 300 // the tests 1 to 300 that have the keyword HTTP
)

// curlTargets are curl and the servers and helpers of its tests.
var curlTargets = []string{"curl", "disabled", "fake_ntlm", "getpart", "mqttd", "resolve", "rtspd", "sockfilt", "socksd", "sws", "tftpd"}

func (*curlSuite) name() string { return "curl-http" }

func (*curlSuite) fetch(ctx context.Context, o options) error {
	return fetchSource(ctx, o, curlPackage)
}

func (s *curlSuite) prepare(ctx context.Context, o options) error {
	source, err := sourceDir(o, curlPackage)
	if err != nil {
		return err
	}
	build := filepath.Join(o.cache, curlPackage, "build")
	s.source, s.build = filepath.Join(source, "tests"), filepath.Join(build, "tests")
	return cmakeBuild(ctx, o, source, build, curlTargets, "-DCMAKE_C_FLAGS=-O1", "-DPICKY_COMPILER=OFF", "-DBUILD_TESTING=ON",
		"-DBUILD_SHARED_LIBS=OFF", "-DCURL_USE_OPENSSL=ON", "-DCURL_USE_LIBSSH2=OFF", "-DCURL_ZLIB=OFF",
		"-DCURL_DISABLE_LDAP=ON", "-DCURL_DISABLE_LDAPS=ON", "-DENABLE_MANUAL=OFF")
}

var curlKeywords = regexp.MustCompile(`(?s)<keywords>(.*?)</keywords>`)

// tests returns the tests' numbers, taken from the names of their files.
func (s *curlSuite) tests(context.Context) ([]string, error) {
	var names []string
	for n := 1; n <= curlLast; n++ {
		name := strconv.Itoa(n)
		text, err := os.ReadFile(filepath.Join(s.source, "data", "test"+name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if k := curlKeywords.FindSubmatch(text); k != nil && strings.Contains(string(k[1])+"\n", "\nHTTP\n") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: no tests there", s.source)
	}
	return names, nil
}

// cannot refuses preload, because the servers are processes of their own.
func (*curlSuite) cannot(engine string) string {
	if engine == preload {
		return "forks"
	}
	return ""
}

func (s *curlSuite) run(ctx context.Context, m mode, done []string) (results, bool, error) {
	names, err := s.tests(ctx)
	if err != nil {
		return nil, false, err
	}
	todo := without(names, done)
	if len(todo) == 0 {
		return results{}, true, nil
	}
	// Without valgrind, continue after failures, one line per test.
	args := append([]string{"perl", filepath.Join(s.source, "runtests.pl"), "-n", "-a", "-am"}, todo...)
	var out bytes.Buffer
	status, err := m.start(ctx, m.suite/2, s.build, &out, []string{"srcdir=" + s.source}, m.wrap(args...)...)
	m.note(fmt.Sprintf("%sexit status %d\n", out.Bytes(), status))
	if err != nil && !errors.Is(err, errLimit) {
		return nil, false, err
	}
	got, complete := curlResults(out.Bytes(), todo, status)
	return got, complete, nil
}

var (
	curlLine   = regexp.MustCompile(`(?m)^(PASS|FAIL): ([0-9]+) - `)
	curlFailed = regexp.MustCompile(`(?m)^TESTFAIL: These test cases failed: ([0-9 ]+)$`)
)

// curlResults parses the output of runtests.pl for the given tests. It also reports
// whether the run was complete. runtests.pl prints nothing about tests that were skipped
// or that hung.
func curlResults(out []byte, tests []string, status int) (results, bool) {
	got := results{}
	for _, l := range curlLine.FindAllSubmatch(out, -1) {
		got[string(l[2])] = outcome(strings.ToLower(string(l[1])))
	}
	if l := curlFailed.FindSubmatch(out); l != nil {
		for _, name := range strings.Fields(string(l[1])) {
			got[name] = fail
		}
	}
	last := -1 // the last test with output
	for i, name := range tests {
		if _, ok := got[name]; ok {
			last = i
		}
	}
	complete := bytes.Contains(out, []byte("\nTESTDONE: "))
	for i, name := range tests {
		if _, ok := got[name]; ok {
			continue
		}
		switch {
		case complete || i < last:
			got[name] = skip
		case i == last+1 && status == -1:
			got[name] = hang
		case i == last+1:
			got[name] = crash
		}
	}
	return got, complete
}
