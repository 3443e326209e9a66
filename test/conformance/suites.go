// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// allSuites lists the suites in the order of the table.
var allSuites = []suite{
	&pythonSuite{label: "python-socket", modules: []string{"test.test_socket"}},
	&pythonSuite{label: "python-select", modules: []string{"test.test_select", "test.test_selectors", "test.test_poll", "test.test_epoll"}},
	&pythonSuite{label: "python-asyncio", modules: asyncioModules()},
	&pythonSuite{label: "python-ssl", modules: []string{"test.test_ssl"}},
	&pythonSuite{label: "python-urllib2", modules: []string{"test.test_urllib2_localnet"}},
	&goSuite{pkg: "net"},
	&goSuite{pkg: "net/http"},
	&libuvSuite{},
	&libuvSuite{servers: true},
	&curlSuite{},
	&mptcpSuite{},
	&kernelSuite{},
	&scriptSuite{},
}

// runtimes is the name of the group of suites below.
const runtimes = "runtimes"

// runtimeSuites lists the suites of language runtimes and servers, in the order of their
// own table.
var runtimeSuites = []suite{
	&goSuite{pkg: "crypto/tls"},
	&goSuite{pkg: "net/rpc"},
	&goSuite{pkg: "net/smtp"},
	&goSuite{pkg: "net/http/httputil"},
	&goSuite{pkg: "net/http/httptest"},
	&goSuite{pkg: "log/syslog"},
	nodeSuite("net"), nodeSuite("dgram"), nodeSuite("http"), nodeSuite("https"), nodeSuite("http2"), nodeSuite("tls"), nodeSuite("cluster"),
	&filesSuite{
		label: "ruby", source: "ruby3.1", dir: "test", files: []string{"socket/test_*.rb", "net/*/test_*.rb"},
		command: "exec $run /usr/bin/ruby -I. -Ilib -I../tool/lib runner.rb -v --tty=no \"$1\"", cases: rubyCases, single: true,
	},
	&filesSuite{
		label: "php", source: "php8.2",
		files:   []string{"ext/sockets/tests/*.phpt", "ext/standard/tests/streams/*.phpt", "ext/standard/tests/network/*.phpt", "ext/standard/tests/http/*.phpt"},
		build:   `printf '#!/bin/sh\nexec $run /usr/bin/php "$@"\n' >run-php; chmod +x run-php`,
		command: `exec /usr/bin/php run-tests.php -q --no-color -p "$source/run-php" --set-timeout 30 "$1"`, cases: phpCases, single: true,
	},
	&filesSuite{
		label: "perl", source: "perl",
		files: []string{"dist/IO/t/*.t", "cpan/Socket/t/*.t", "cpan/IO-Socket-IP/t/*.t", "cpan/libnet/t/*.t", "cpan/HTTP-Tiny/t/*.t", "t/io/socket*.t"},
		// The files find their own modules and data in their distribution's directory.
		command: `cd "${1%/t/*}" && exec $run /usr/bin/perl -I. -It "t/${1##*/t/}"`, cases: tap, single: true,
	},
	&filesSuite{
		label: "tornado", source: "tornado", inPackages: true, dir: "usr/lib/python3/dist-packages", packages: []string{"python3-tornado"},
		// The other files use no sockets.
		files: strings.Fields("tornado/test/asyncio_test.py tornado/test/auth_test.py tornado/test/http[1cs]*_test.py tornado/test/io*_test.py tornado/test/netutil_test.py " +
			"tornado/test/process_test.py tornado/test/routing_test.py tornado/test/simple_*_test.py tornado/test/t[ce][ps]*_test.py tornado/test/w*_test.py"),
		command: `m=$(echo "${1%.py}" | tr / .); ASYNC_TEST_TIMEOUT=30 exec $run /usr/bin/python3 -m tornado.testing --verbose "$m"`, cases: unittestCases, single: true, limit: 3 * time.Minute,
	},
	&filesSuite{
		label: "erlang", source: "erlang", dir: "lib/kernel/test",
		files: strings.Fields("gen_tcp_api_SUITE.erl gen_tcp_echo_SUITE.erl gen_udp_SUITE.erl inet_SUITE.erl inet_sockopt_SUITE.erl"),
		build: `erlc -I "$source/lib" gen_*_SUITE.erl inet_*SUITE.erl kernel_test_*.erl "$source/lib/common_test/test_server/ts_install_cth.erl"`,
		// Many tests wait, for instance for timeouts.
		command: `HOME=$(mktemp -d) || exit; export HOME
ct_run -noshell -dir . -suite "${1%.erl}" -no_auto_compile -logdir "$HOME"; status=$?; cat "$HOME"/*/*/run.*/suite.log; rm -r "$HOME"; exit $status`,
		cases: erlangCases, limit: 10 * time.Minute,
	},
	&filesSuite{
		label: "haproxy", source: "haproxy", packages: []string{"varnish", "libvarnishapi3"}, files: []string{"reg-tests/*/*.vtc"},
		command: `HAPROXY_PROGRAM=/usr/sbin/haproxy; export HAPROXY_PROGRAM; exec "$root/usr/bin/varnishtest" -t 30 "$1"`,
	},
}

// nodeSuite returns the tests of a module of Node.js, with Debian's own program. Each
// file names the flags that it needs.
func nodeSuite(module string) suite {
	return &filesSuite{
		label: "node-" + module, source: "nodejs", packages: []string{"nodejs", "libnode108"}, dir: "test",
		files:   []string{"parallel/test-" + module + "-*.js", "sequential/test-" + module + "-*.js"},
		command: `exec $run "$root/usr/bin/node" $(sed -n "s|^// Flags: ||p" "$1") "$1"`, cases: nodeCases, single: module != "cluster",
	}
}

// asyncioModules returns the test modules of asyncio that use sockets, pipes or
// processes.
func asyncioModules() []string {
	var all []string
	for _, m := range strings.Fields("base_events buffered_proto events selector_events sendfile server " +
		"sock_lowlevel ssl sslproto streams subprocess transports unix_events") {
		all = append(all, "test.test_asyncio.test_"+m)
	}
	return all
}

func suiteNames() []string {
	var names []string
	for _, s := range slices.Concat(allSuites, runtimeSuites) {
		names = append(names, s.name())
	}
	return names
}

// choose returns the suites that the command line selects.
func choose(o options) ([]suite, error) {
	if len(o.suites) == 0 {
		return allSuites, nil
	}
	if slices.Equal(o.suites, []string{runtimes}) {
		return runtimeSuites, nil
	}
	var chosen []suite
	for _, name := range o.suites {
		found := false
		for _, s := range slices.Concat(allSuites, runtimeSuites) {
			if s.name() == name {
				chosen, found = append(chosen, s), true
			}
		}
		if !found {
			return nil, fmt.Errorf("-suites: no suite %q; there are %s", name, strings.Join(suiteNames(), ", "))
		}
	}
	return chosen, nil
}

func appendFile(name, text string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(text); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
