// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"strings"
	"testing"
)

// The parsers of the kernel's and iptables' output accept any input and return
// a result that matches it.
func FuzzPorts(f *testing.F) {
	for _, s := range []string{"", "1,2", "80,1000-2000\n", "65535", "1-65535", "70000", "5-", "\n,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		set, err := parsePorts(s)
		if err != nil {
			return
		}
		again, err := parsePorts(set.String())
		if err != nil || *again != *set {
			t.Errorf("%q was read as %v, that as %v, %v", s, set, again, err)
		}
	})
}

func FuzzRules(f *testing.F) {
	const tag = "lklrun-x.y:20000-20999"
	f.Add("-P PREROUTING ACCEPT -c 0 0\n-A PREROUTING -d 192.0.2.1/32 -i v0 -p tcp -m tcp --dport 20000:20999 -m comment --comment \"" + tag + "\" -c 3 120 -j DROP\n")
	f.Add("-A X --comment " + tag + " -c 1")
	f.Add("-A --comment")
	f.Fuzz(func(t *testing.T, s string) {
		for _, l := range parseRules(s, tag) {
			if l.words[0] != "-A" || !strings.Contains(strings.Join(l.words, " "), "--comment "+tag) {
				t.Errorf("%q was read as %q", s, l.words)
			}
		}
	})
}

func TestParseRules(t *testing.T) {
	const tag = "lklrun-x.y:20000-20999"
	all := parseRules("-P PREROUTING ACCEPT -c 0 0\n-A PREROUTING -p tcp -m comment --comment other -c 1 2 -j DROP\n-A PREROUTING -d 192.0.2.1/32 -m comment --comment \""+tag+"\" -c 3 120 -j DROP\n", tag)
	if len(all) != 1 || all[0].count != (Count{3, 120}) || strings.Join(all[0].words, " ") != "-A PREROUTING -d 192.0.2.1/32 -m comment --comment "+tag+" -j DROP" {
		t.Errorf("%+v", all)
	}
}
