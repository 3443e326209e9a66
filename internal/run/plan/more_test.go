// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/pkg/config"
)

// An additional interface gets the first free number and conflicts with no
// other interface.
func TestMore(t *testing.T) {
	p, err := makePlan(config.Run{Command: []string{"true"}, Interfaces: ifs(t, "user", "tap:tap0,ip=10.0.0.2/24", "user")}, mptcp)
	if err != nil {
		t.Fatal(err)
	}
	add := func(have []Link, spec string) (string, error) {
		i := ifs(t, spec)
		l, _, err := p.More(looked(i)[0], "", have)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%s %v table %d metric %d", l.Name, l.Addrs, l.Table, l.Metric()), nil
	}
	renamed := append([]Link(nil), p.Links[:2]...)
	renamed[1].Name = "eth5" // the stack already has an eth1
	for _, tc := range []struct {
		have []Link
		spec string
		want string
	}{
		{p.Links, "tap:a,ip=10.0.1.2/24", "eth3 [10.0.1.2/24] table 103 metric 103"},
		{p.Links, "user", "eth3 [192.168.129.2/24] table 103 metric 103"},
		{p.Links[1:], "user", "eth0 [192.168.127.2/24] table 100 metric 100"}, // the first link was removed
		{renamed, "tap:a,ip=10.0.1.2/24", "eth2 [10.0.1.2/24] table 102 metric 102"},
		{renamed, "tap:a,ip=10.0.1.2/24,table=7", "eth1 [10.0.1.2/24] table 7 metric 101"},
		{nil, "tap:a,ip=10.0.0.2/24", "eth0 [10.0.0.2/24] table 100 metric 100"},
	} {
		if got, err := add(tc.have, tc.spec); err != nil || got != tc.want {
			t.Errorf("%s beside %d: %s, %v; want %s", tc.spec, len(tc.have), got, err, tc.want)
		}
	}
	eight := make([]Link, MaxLinks)
	for n := range eight {
		eight[n] = Link{Name: fmt.Sprintf("eth%d", n), Table: config.FirstTable + n}
	}
	for _, tc := range []struct {
		have []Link
		spec string
		want string
	}{
		{p.Links, "tap:a,ip=10.0.0.2/8", `--if "tap:a,ip=10.0.0.2/8": address 10.0.0.2 is already used by eth1`},
		{p.Links, "tap:a,table=102", `--if "tap:a,table=102": table 102 is already used by eth2`},
		{p.Links, "tap:a,mac=" + p.Links[1].MAC.String(), "is already used by eth1"},
		{p.Links, "user,ip=192.168.128.2/24", "address 192.168.128.2 is already used by eth2"},
		{eight, "tap:a", "the limit is 8"},
	} {
		if got, err := add(tc.have, tc.spec); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %s, %v; want %s", tc.spec, got, err, tc.want)
		}
	}
	onHost, err := makePlan(config.Run{Command: []string{"true"}}, host)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := onHost.More(looked(ifs(t, "user"))[0], "", nil); err == nil {
		t.Error("an interface was added to the host's own stack")
	}
}
