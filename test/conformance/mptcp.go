// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// mptcpSuite is mptcp_connect of tools/testing/selftests/net/mptcp, between a stack and
// the host's own kernel, over a tap. Natively, it runs between two namespaces.
type mptcpSuite struct {
	bin, script, work string
}

func (*mptcpSuite) name() string { return "kernel-mptcp" }

func (s *mptcpSuite) prepare(ctx context.Context, o options) error {
	net, err := kernelTests(ctx, o)
	if err != nil {
		return err
	}
	s.script = filepath.Join(o.root, "test", "conformance", "kernel", "pair.sh")
	s.work = filepath.Join(o.cache, "pair")
	s.bin, err = buildKernelTest(ctx, o, net, "mptcp/mptcp_connect")
	return err
}

// mptcpVariants are arguments of mptcp_connect that both sides get.
var mptcpVariants = []string{
	"-m poll",
	"-m mmap",
	"-m sendfile",
	"-m poll -P saveWithPeek",
	"-m poll -P saveAfterPeek",
	"-m poll -R 65536 -S 65536",
	"-m mmap -R 65536 -S 65536",
	"-m poll -c TIMESTAMPNS",
	"-m poll -c TCPINQ",
}

func (*mptcpSuite) tests(context.Context) ([]string, error) {
	var names []string
	for _, family := range []string{"4", "6"} {
		for _, proto := range []string{"MPTCP", "TCP"} {
			for _, listener := range []string{"near", "far"} {
				for _, v := range mptcpVariants {
					names = append(names, strings.ReplaceAll(fmt.Sprintf("%s ipv%s %s listens %s", proto, family, listener, v), " ", "_"))
				}
			}
		}
	}
	return names, nil
}

func (*mptcpSuite) cannot(string) string { return "" }

func (s *mptcpSuite) run(ctx context.Context, m mode, done []string) (results, bool, error) {
	far := native
	if m.stack != native {
		far = strings.Join(m.lklrun(), " ")
	}
	names, err := s.tests(ctx)
	if err != nil {
		return nil, false, err
	}
	got := results{}
	for _, name := range without(names, done) {
		f := strings.Split(name, "_")
		args := []string{s.script, far, f[2], strings.TrimPrefix(f[1], "ipv"), s.work, s.bin, "-s", f[0]}
		status, err := m.start(ctx, m.test, filepath.Dir(s.work), nil, nil, append(args, f[4:]...)...)
		m.note(fmt.Sprintf("%s: exit status %d\n", name, status))
		switch {
		case errors.Is(err, errLimit):
			got[name] = hang
		case err != nil:
			return nil, false, err
		case status == 0:
			got[name] = pass
		default:
			got[name] = fail
		}
	}
	return got, true, nil
}
