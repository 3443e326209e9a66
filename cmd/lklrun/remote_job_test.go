// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lklrun/lklrun/internal/remote"
	"github.com/lklrun/lklrun/pkg/config"
)

// Every setting reaches lklrun on the device unchanged.
func TestJob(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, []byte(`{"delay": 5, "mount": ["debugfs"], "dump": ["/proc/net/snmp"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	policy := filepath.Join(t.TempDir(), "policy.json")
	if err := os.WriteFile(policy, []byte(`{"allow": [{"to": "a.example", "ports": ["80-90", 443], "protocol": "tcp"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &runner{}
	flags := []string{
		"--config", file, "--stack", "bbr", "--if", "tap:t0,ip=10.0.1.2/24,ip6=fd00::2/64,gw=10.0.1.1,mac=02:00:00:00:00:07,vlan=7,neigh=10.0.1.1|02:00:00:00:00:01,route=10.2.0.0/16|10.0.1.1,backup,offload=0x83",
		"--if", "raw:wlan0,mtu=1400,dns=192.0.2.1", "--iface", "rmnet0,rmnet1", "--sysctl", "net.ipv4.tcp_ecn=1", "--sysctl=-net.a.b=2 3",
		"--dns", "192.0.2.53", "--add-host", "server=192.0.2.1", "--host-net", "10.0.0.0/8:80", "--allow", "*.example.com:443", "--allow", "[fd00::/8]:80", "--publish", "[::1]:8080:80/udp", "--listen", "80", "--port-range", "50000-50999",
		"--rst-guard", "off", "--user", "nobody", "--name", "n", "--mem", "64M", "--cmdline", "a b=c", "--engine", "preload", "--spin", "0", "--coalesce", "1000",
		"--require", "mptcp", "--detach", "--log", "out", "--wait-all", "--explain", "--tls-keys", "--egress", policy, "--egress-log", "log.json", "--proxy", "http://192.0.2.1:8080", "--capture", "ring,size=1M", "--capture", "a b.pcapng,snap=128,if=eth0", "-v", "-q",
	}
	if err := r.command().ParseFlags(flags); err != nil {
		t.Fatal(err)
	}
	j, err := r.job([]string{"cat", "-"})
	if err != nil {
		t.Fatal(err)
	}
	j.captures.folder = "/there"
	text, err := json.Marshal(j.start(&remote.Ready{}).Run)
	if err != nil {
		t.Fatal(err)
	}
	sent := filepath.Join(t.TempDir(), "sent.json")
	if err := os.WriteFile(sent, text, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := configured(sent)
	if err != nil {
		t.Fatal(err)
	}
	want, err := r.load([]string{"cat", "-"})
	if err != nil {
		t.Fatal(err)
	}
	want.Run.Captures[1].File = "/there/0"
	if diff := cmp.Diff(want.Run, got.Run, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	for _, s := range config.Settings() {
		if s.Key != "profile" && s.Key != "command" && len(want.Words[s.Key]) == 0 {
			t.Errorf("the setting %s is not part of this test", s.Key)
		}
	}
}
