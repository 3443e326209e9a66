// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
)

// libuvSuite is the network tests of libuv, the event loop of node and others.
type libuvSuite struct {
	// servers selects the tests with servers or clients in separate processes.
	servers bool
	binary  string
}

const libuvPackage = "libuv1"

// libuvWords are the prefixes of the names of network tests. The other tests are about
// files, processes, threads, timers, terminals and pipes.
const libuvWords = " callback connect connection delayed emfile getaddrinfo getnameinfo getsockname handle ip ip4 ip6 ipc" +
	" multiple not poll readable shutdown socket tcp tcp6 udp watcher "

func (s *libuvSuite) name() string {
	if s.servers {
		return "libuv-servers"
	}
	return "libuv"
}

func (*libuvSuite) fetch(ctx context.Context, o options) error {
	return fetchSource(ctx, o, libuvPackage)
}

func (s *libuvSuite) prepare(ctx context.Context, o options) error {
	source, err := sourceDir(o, libuvPackage)
	if err != nil {
		return err
	}
	build := filepath.Join(o.cache, libuvPackage, "build")
	s.binary = filepath.Join(build, "uv_run_tests")
	return cmakeBuild(ctx, o, source, build, []string{"uv_run_tests"}, "-DCMAKE_BUILD_TYPE=Release", "-DLIBUV_BUILD_TESTS=ON")
}

// libuvEnv lets the tests run as root, and extends their timeouts for a busy machine.
var libuvEnv = []string{"UV_RUN_AS_ROOT=1", "UV_TEST_TIMEOUT_MULTIPLIER=8"}

func (s *libuvSuite) tests(ctx context.Context) ([]string, error) {
	out, err := output(ctx, filepath.Dir(s.binary), libuvEnv, s.binary, "--list")
	if err != nil {
		return nil, err
	}
	return libuvTests(string(out), s.servers), nil
}

// libuvTests selects tests from libuv's list, which names the helpers that each test
// needs. Tests of inter-process communication start their helpers themselves.
func libuvTests(list string, servers bool) []string {
	var names []string
	for _, line := range strings.Split(list, "\n") {
		name, helpers, _ := strings.Cut(line, " ")
		word, _, _ := strings.Cut(name, "_")
		if name == "" || !strings.Contains(libuvWords, " "+word+" ") {
			continue
		}
		if servers == (helpers != "" || word == "ipc") {
			names = append(names, name)
		}
	}
	return names
}

func (s *libuvSuite) cannot(engine string) string {
	if s.servers && engine == preload {
		return "forks"
	}
	return ""
}

// libuvSkip is the exit status for a test that cannot run here.
const libuvSkip = 7

func (s *libuvSuite) run(ctx context.Context, m mode, done []string) (results, bool, error) {
	names, err := s.tests(ctx)
	if err != nil {
		return nil, false, err
	}
	got := results{}
	for _, name := range without(names, done) {
		args := []string{s.binary, name}
		if !s.servers {
			args = append(args, name) // the part with that name, in this process
		}
		var out bytes.Buffer
		status, err := m.start(ctx, m.test, filepath.Dir(s.binary), &out, libuvEnv, m.wrap(args...)...)
		m.note(fmt.Sprintf("%sexit status %d\n", out.Bytes(), status))
		if err != nil && !errors.Is(err, errLimit) {
			return nil, false, err
		}
		got[name] = libuvOutcome(status, out.Bytes())
	}
	return got, true, nil
}

// libuvOutcome determines the outcome of a test from its exit status (-1 at the limit)
// and its output. The runner uses status 255 for several outcomes.
func libuvOutcome(status int, said []byte) outcome {
	switch {
	case status == 0:
		return pass
	case status == libuvSkip:
		return skip
	case status == -1 || bytes.Contains(said, []byte("\n# timeout\n")):
		return hang
	case status > 128 && status < 255 && status != 128+int(syscall.SIGABRT): // an assertion aborts
		return crash
	}
	return fail
}
