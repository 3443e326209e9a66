// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
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
	for _, s := range allSuites {
		names = append(names, s.name())
	}
	return names
}

// choose returns the suites that the command line selects.
func choose(o options) ([]suite, error) {
	if len(o.suites) == 0 {
		return allSuites, nil
	}
	var chosen []suite
	for _, name := range o.suites {
		found := false
		for _, s := range allSuites {
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
