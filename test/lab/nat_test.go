// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestNAT has a client of STUN (RFC 3489) find out the type of each NAT. Through each of them,
// TCP reaches the server, which reaches no address behind it.
func TestNAT(t *testing.T) {
	kit.Need(t, "stun", "stund", "nft", "ping", "curl", "/usr/bin/python3", "ip")
	u := newUser(t)
	types := []struct{ keys, stun string }{
		{`"nat": "full-cone"`, "Independent Mapping, Independent Filter, preserves ports, no hairpin"},
		{`"nat": "restricted"`, "Independent Mapping, Address Dependent Filter, preserves ports, no hairpin"},
		{`"nat": "port-restricted"`, "Independent Mapping, Port Dependent Filter, preserves ports, no hairpin"},
		{`"nat": "symmetric"`, "Dependent Mapping, random port, no hairpin"},
		{`"nat": "port-restricted", "hairpin": true`, "Independent Mapping, Port Dependent Filter, preserves ports, will hairpin"},
		{`"nat": "symmetric", "hairpin": true`, "Dependent Mapping, random port, will hairpin"},
	}
	nodes, steps := `"stun": {"wires": [{"wire": "wan", "ip": "10.9.0.2"}], "server": true,
      "run": "ip addr add 10.9.0.99/24 dev eth0; stund -v -h 10.9.0.2 -a 10.9.0.99 & exec python3 -m http.server 80"}`, ""
	for n, nat := range types {
		nodes += fmt.Sprintf(`,
    "in%d": {"wires": ["lan%[1]d"]}, "gw%[1]d": {"wires": ["lan%[1]d", {"wire": "wan", %s}], "router": true}`, n, nat.keys)
		steps += fmt.Sprintf(`
    {"on": "in%d", "run": "stun 10.9.0.2; curl -sS --retry 9 --retry-connrefused -o /dev/null http://stun/", "background": true},`, n)
	}
	for n := range types {
		steps += fmt.Sprintf(`
    {"on": "stun", "run": "ping -c 1 -W 0.1 in%d", "expect": 1},`, n)
	}
	file := filepath.Join(u.folder, "nat.json")
	kit.Must(t, os.WriteFile(file, fmt.Appendf(nil, `{"wires": {"wan": {"network": "10.9.0.0/24"}}, "nodes": {%s}, "steps": [%s]}`, nodes, steps), 0o644))
	r := kit.Run(t, 2*kit.Limit, u.lab("run", "--no-capture", file))
	if r.Status != 0 {
		t.Fatal(r)
	}
	for n, nat := range types {
		got := kit.ReadFile(t, filepath.Join(u.folder, "nat.results", fmt.Sprintf("step-%d.log", n+1)))
		if !strings.Contains(got, "Primary: "+nat.stun) {
			t.Errorf("%s: %s\nwant %s", nat.keys, got, nat.stun)
		}
	}
}
