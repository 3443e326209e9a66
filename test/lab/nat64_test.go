// SPDX-License-Identifier: Apache-2.0

package lab

import (
	_ "embed"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/announce.py
var announce string

// nat64Lab has a node with a NAT64 between a network with IPv6 only and one with IPv4 only.
const nat64Lab = `{
  "wires": {"lte": {"network": "2001:db8:1::/64"}, "net": {"network": "203.0.113.0/24"}},
  "nodes": {
    "phone": {"wires": [{"wire": "lte", "options": "slaac"}]},
    "nat64": {"wires": [{"wire": "lte", "ip": "2001:db8:1::1"}, {"wire": "net", "nat": "symmetric"}], "router": true, "run": "exec sh nat64.sh"},
    "web": {"wires": [{"wire": "net", "ip": "203.0.113.9"}], "server": true, "run": "exec python3 -um http.server 80"}
  }
}`

const nat64Script = `tayga --config tayga.conf --mktun &&
ip link set nat64 up &&
ip route add 192.168.64.0/24 dev nat64 &&
ip route add 2001:db8:64::/96 dev nat64 || exit
python3 announce.py &
exec tayga --config tayga.conf --nodetach`

const taygaConf = `tun-device nat64
prefix 2001:db8:64::/96
ipv4-addr 192.168.64.1
ipv6-addr 2001:db8:65::1
dynamic-pool 192.168.64.0/24
`

// TestNAT64 runs an unchanged NAT64 (tayga) in a node of a lab, without root. A node in the
// IPv6-only network learns its prefix from router advertisements. Programs that use a literal
// IPv4 address then reach the IPv4-only server. TestCommands has a lab with DNS64.
func TestNAT64(t *testing.T) {
	kit.Need(t, "tayga", "nft", "curl", "/usr/bin/python3", "ip")
	u := newUser(t)
	for name, text := range map[string]string{"lte.json": nat64Lab, "nat64.sh": nat64Script, "tayga.conf": taygaConf, "announce.py": announce} {
		kit.Must(t, os.WriteFile(filepath.Join(u.folder, name), []byte(text), 0o644))
	}
	before := kit.Take(t)
	kit.OK(t, kit.Limit, u.lab("up", "lte.json"))
	t.Cleanup(func() { kit.Run(t, kit.Limit, u.lab("down", "--all")) })
	get := []string{"exec", "phone", "--", "curl", "-sS", "-m", "20", "-o", "/dev/null", "-w", "%{http_code}", "http://203.0.113.9/"}
	if r := kit.Run(t, kit.Limit, u.lab(get...)); r.Status == 0 {
		t.Errorf("IPv4 works without a clat: %v", r)
	}
	kit.OK(t, kit.Limit, u.command(u.bin+"/lklctl", "-n", "lte.phone", "link", "add", "clat"))
	kit.WaitFor(t, "IPv4", kit.Limit, func() bool { return kit.Run(t, kit.Limit, u.lab(get...)).Stdout == "200" })
	status := kit.OK(t, kit.Limit, u.lab("status"))
	if !regexp.MustCompile(`(?m)^lte +phone +mptcp +lte 2001:db8:1::2/64$`).MatchString(status) {
		t.Errorf("lab status:\n%s", status)
	}
	logs := kit.OK(t, kit.Limit, u.command(u.bin+"/lklctl", "-n", "lte.web", "logs"))
	if !strings.Contains(logs, `203.0.113.1 - -`) {
		t.Errorf("the server's log:\n%s", logs)
	}
	if got := kit.OK(t, kit.Limit, u.lab("down")); got != "lte: 3 nodes ended\n" {
		t.Errorf("lab down: %q", got)
	}
	before.Same()
}
