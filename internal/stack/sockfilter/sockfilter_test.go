// SPDX-License-Identifier: Apache-2.0

package sockfilter_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/sockfilter"
)

// sockets are the sockets for the tests, by name.
func sockets() map[string]sockdiag.Socket {
	inet := func(proto sockdiag.Proto, state sockdiag.State, local, remote string) sockdiag.Socket {
		s := sockdiag.Socket{Proto: proto, State: state, Local: netip.MustParseAddrPort(local), Remote: netip.MustParseAddrPort(remote), Family: unix.AF_INET}
		if s.Local.Addr().Is6() {
			s.Family = unix.AF_INET6
		}
		return s
	}
	all := map[string]sockdiag.Socket{
		"web":    inet(sockdiag.TCP, sockdiag.Established, "10.0.0.1:40000", "192.0.2.7:443"),
		"ssh":    inet(sockdiag.TCP, sockdiag.Established, "10.0.0.1:22", "10.9.9.9:50000"),
		"six":    inet(sockdiag.TCP, sockdiag.SynSent, "[fd00::1]:40001", "[2001:db8::5]:443"),
		"mapped": inet(sockdiag.TCP, sockdiag.TimeWait, "[::ffff:10.0.0.1]:80", "[::ffff:10.1.2.3]:1025"),
		"listen": inet(sockdiag.TCP, sockdiag.Listen, "0.0.0.0:80", "0.0.0.0:0"),
		"dns":    inet(sockdiag.UDP, sockdiag.Close, "0.0.0.0:53", "0.0.0.0:0"),
		"query":  inet(sockdiag.UDP, sockdiag.Established, "10.0.0.1:40002", "192.0.2.53:53"),
		"unix":   {Proto: sockdiag.Unix, Family: unix.AF_UNIX, State: sockdiag.Listen, Name: "/run/My/sock"},
		"packet": {Proto: sockdiag.Packet, Family: unix.AF_PACKET, State: sockdiag.Close, Protocol: sockdiag.Known(3), IfIndex: 2, Iface: "eth0"},
		"route":  {Proto: sockdiag.Netlink, Family: unix.AF_NETLINK, State: sockdiag.Close, Protocol: sockdiag.Known(0), PortID: sockdiag.Known(0)},
	}
	for name, change := range map[string]func(*sockdiag.Socket){
		"ssh":   func(s *sockdiag.Socket) { s.IfIndex, s.Iface = 2, "eth0" },
		"query": func(s *sockdiag.Socket) { s.Iface = "eth0" }, // by its address, not bound
	} {
		s := all[name]
		change(&s)
		all[name] = s
	}
	return all
}

// In the filters "," separates arguments.
func TestMatch(t *testing.T) {
	every := "dns listen mapped packet query route six ssh unix web"
	for filter, want := range map[string]string{
		"":                                every,
		"state all":                       every,
		"state established":               "query ssh web",
		"state ESTABLISHED":               "query ssh web",
		"state connected":                 "query six ssh web",
		"state synchronized":              "query ssh web",
		"state bucket":                    "mapped",
		"state big":                       "dns listen packet query route six ssh unix web",
		"state listening":                 "listen unix",
		"state closed":                    "dns packet route",
		"exclude listening":               "dns mapped packet query route six ssh web",
		"exclude all":                     "",
		"state all exclude big":           "mapped",
		"state syn-sent state time-wait":  "mapped six",
		"excl established dport = :443":   "six",
		"state established dport = :443":  "web",
		"state,established,dport,=,:443":  "web",
		"dport = :443":                    "six web",
		"dport :443":                      "six web",
		"dport 443":                       "six web",
		"dport eq 0x1bb":                  "six web",
		"dport == :https":                 "six web",
		"sport = :domain":                 "dns",
		"sport != :22":                    "dns listen mapped packet query route six unix web",
		"sport ne :22 and src 10.0.0.0/8": "mapped query web",
		"sport > :40000":                  "query six",
		"sport >= :40000":                 "query six web",
		"sport < :53":                     "ssh",
		"sport le :53":                    "dns ssh",
		"dst 192.0.2.7":                   "web",
		"dst = 192.0.2.0/24":              "query web",
		"dst 192.0.2.7:443":               "web",
		"dst [2001:db8::5]:443":           "six",
		"dst [2001:db8::]/32:443":         "six",
		"dst 2001:db8::/32":               "six",
		"dst 10.1.2.3":                    "mapped",
		"dst ::ffff:10.1.2.3":             "mapped",
		"dst *:443":                       "six web",
		"dst :443":                        "six web",
		"src != 10.0.0.1":                 "dns listen packet route six unix",
		"dev eth0":                        "packet ssh",
		"dev = 2":                         "packet ssh",
		"dev != eth0 sport = :22":         "",
		"not dport = :443 sport = :22":    "ssh",
		"not ( dport = :443 or sport = :22 ) and src 10.0.0.0/8": "mapped query",
		"(dport = :443 or sport = :22) && src 10.0.0.1":          "ssh web",
		// From left to right: (web or ssh) and six.
		"dst 192.0.2.7 or sport = :22 and dport = :443":              "web",
		"sport = :22 and dport = :443 or dst 192.0.2.7":              "web",
		"sport = :22 | dport = :443 & src 10.0.0.0/8 || sport = :53": "dns ssh web",
		"! ! sport = :22": "ssh",
	} {
		f, err := sockfilter.Parse(strings.FieldsFunc(filter, func(r rune) bool { return r == ',' }))
		if err != nil {
			t.Errorf("%s: %v", filter, err)
			continue
		}
		var got []string
		for name, s := range sockets() {
			if f.Match(s) {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s:\n%s", filter, diff)
		}
	}
}

// An error names the word and what was expected.
func TestErrors(t *testing.T) {
	for filter, want := range map[string]string{
		"dprt = :443":             `"dprt"; expected a condition`,
		"dport":                   `the filter ends after "dport"; expected a port`,
		"dport =":                 `"dport" ends after "="; expected a port`,
		"dport = :":               `dport ":"; expected a port from 0 to 65535`,
		"dport = :nosuchservice":  `dport ":nosuchservice"; expected a port`,
		"dport = :65536":          `dport ":65536"; expected a port`,
		"dport = 10.0.0.1:80":     `dport "10.0.0.1:80"; expected a port`,
		"dst localhost":           `dst "localhost"; expected ADDRESS`,
		"dst 10.0.0.1/33":         `dst "10.0.0.1/33"`,
		"dst [::1":                `dst "[::1"`,
		"dst [::1]80":             `dst "[::1]80"`,
		"dst fe80::1%eth0":        `dst "fe80::1%eth0"`,
		"dst > 10.0.0.1":          "only ports can be compared by order",
		"dev":                     "the name or the number of an interface",
		"dev >= eth0":             "only ports can be compared by order",
		"state":                   `"state": expected a state after it: all, big`,
		"state open":              `state "open"; expected one of all, big`,
		"dport = :1 state closed": `"state": must precede all conditions`,
		"( dport = :1":            `missing ")"`,
		"dport = :1 )":            `there is no matching "("`,
		"( )":                     `")"; expected a condition`,
		"not":                     `the filter ends after "not"`,
		"dport = :1 or":           `the filter ends after "or"`,
		"and dport = :1":          `"and"; expected a condition`,
		"cgroup /x":               "use lklctl exec -- ss",
		strings.Repeat("! ", 101): "more than 100",
	} {
		_, err := sockfilter.Parse([]string{filter})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", filter, err, want)
		}
	}
}

// These methods describe a filter before its use.
func TestAsked(t *testing.T) {
	f, err := sockfilter.Parse([]string{"state", "closed", "dev", "eth7"})
	if err != nil {
		t.Fatal(err)
	}
	if !f.HasStates() || f.Empty() || !slices.Equal(f.Devices(), []string{"eth7"}) {
		t.Errorf("%+v", f)
	}
	if f, err := sockfilter.Parse(nil); err != nil || !f.Empty() || f.HasStates() {
		t.Errorf("%+v, %v", f, err)
	}
}

// Any input is a filter, or an error of one line.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"state established ( dport = :443 or sport >= 1024 ) and not dst [::1]/64:80", "src 127.0.0.0/8 dev eth0",
		"exclude all ! !", ")(", "dst [", "dport =",
	} {
		f.Add(seed)
	}
	some := sockets()
	f.Fuzz(func(t *testing.T, text string) {
		filter, err := sockfilter.Parse([]string{text})
		if err != nil {
			if err.Error() == "" {
				t.Error("an error that says nothing")
			}
			return
		}
		for _, s := range some {
			filter.Match(s)
		}
	})
}
