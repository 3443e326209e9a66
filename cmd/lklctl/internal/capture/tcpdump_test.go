// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The flags of tcpdump are divided between the capture and tcpdump itself.
func TestTcpdumpFlags(t *testing.T) {
	type parsed struct {
		on, filter, direction string
		snaplen               int
		count                 uint64
		pass                  string
	}
	for args, want := range map[string]parsed{
		"":                           {direction: "inout"},
		"-ni eth0 port 80":           {on: "eth0", filter: "port 80", direction: "inout", pass: "-n"},
		"-nieth0 -c5 -vv":            {on: "eth0", direction: "inout", count: 5, pass: "-n -v -v"},
		"port 80 -c 3 -w x -s 96":    {filter: "port 80", direction: "inout", count: 3, snaplen: 96, pass: "-w x"},
		"--interface=any -Q in icmp": {on: "any", filter: "icmp", direction: "in"},
		"--inter any --dir out":      {on: "any", direction: "out"},
		"--snap 64 --nano --count":   {direction: "inout", snaplen: 64, pass: "--nano --count"},
		"-C 5 -W 3 -w f -G 7 -Z me":  {direction: "inout", pass: "-C 5 -W 3 -w f -G 7 -Z me"},
		"-tttt -lpU -- -x":           {filter: "-x", direction: "inout", pass: "-t -t -t -t -l -U"},
	} {
		d, err := parseTcpdump(strings.Fields(args))
		if err != nil {
			t.Errorf("%q: %v", args, err)
			continue
		}
		got := parsed{strings.Join(d.interfaces, " "), d.filter, d.direction, d.snaplen, d.count, strings.Join(d.pass, " ")}
		if got != want {
			t.Errorf("%q: %s", args, cmp.Diff(want, got, cmp.AllowUnexported(parsed{})))
		}
	}
	for args, want := range map[string]string{
		"-i": "-i: missing value", "-r x": "-r: reads a file", "-c 0": "at least 1", "-c many": `-c "many"; expected a number`,
		"--frob": "no flag --frob", "--li": "no flag --li", "-s 999999": "from 0 to 262144", "-F /nonexistent": "tcpdump -F: ",
	} {
		if _, err := parseTcpdump(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
	if !slices.IsSorted([]byte(valued)) {
		t.Errorf("%s is not sorted", valued)
	}
}
