// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// On a host with only iptables, NAT also rejects connections from outside.
func TestNATByIPTables(t *testing.T) {
	p := newPair(t)
	dir := t.TempDir()
	for _, tool := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-restore"} {
			to, err := exec.LookPath(tool + "-legacy" + suffix)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(to, filepath.Join(dir, tool+suffix)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	was := p.rules(t)
	p.host.Do(t, func() error {
		dev, err := net.InterfaceByName("v0")
		if err != nil {
			return err
		}
		n := NAT{
			Tap: "new0", Nets: []netip.Prefix{netip.MustParsePrefix("10.91.0.1/24"), netip.MustParsePrefix("fd91::1/64")},
			Only4: true, Only6: true, Open: []int{dev.Index},
		}
		if err := n.iptablesTables(t.Context()); err != nil {
			return err
		}
		const comment = " -m comment --comment lklrun-nat-new0 -j "
		for save, want := range map[string][]string{
			"iptables-legacy-save": {
				"-A FORWARD -o new0 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT" + comment + "DROP",
				"-A FORWARD -i v0" + comment + "ACCEPT",
				"-A FORWARD -m devgroup ! --src-group 0x6c6b6c ! --dst-group 0x6c6b6c" + comment + "DROP",
				"-A POSTROUTING -s 10.91.0.0/24 ! -o new0" + comment + "MASQUERADE",
			},
			"ip6tables-legacy-save": {
				"-A FORWARD -o new0 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT" + comment + "DROP",
				"-A FORWARD -m devgroup ! --src-group 0x6c6b6c ! --dst-group 0x6c6b6c" + comment + "DROP",
				"-A POSTROUTING -s fd91::/64 ! -o new0" + comment + "MASQUERADE",
			},
		} {
			var got []string
			for line := range strings.Lines(kit.Host.Run(t, save)) {
				if strings.HasPrefix(line, "-A") {
					got = append(got, strings.TrimSpace(line))
				}
			}
			last := -1 // in FORWARD, the rules that accept precede those that drop
			for _, w := range want {
				at := slices.IndexFunc(got, func(g string) bool { return sameRule(g, w) })
				forward := strings.HasPrefix(w, "-A FORWARD")
				if at < 0 || forward && at < last || len(got) != len(want) {
					t.Errorf("%s: %q is not in, or in another place of\n%s", save, w, strings.Join(got, "\n"))
				}
				if forward {
					last = at
				}
			}
		}
		return nil
	})
	p.host.Do(t, func() error { // the steps of Remove without nftables
		for _, table := range []iptables{iptablesNAT, iptablesFence} {
			if err := table.drop(t.Context(), "lklrun-nat-new0"); err != nil {
				return err
			}
		}
		return nil
	})
	if now := p.rules(t); strings.Contains(now, "lklrun") {
		t.Errorf("the rules were\n%s\nand are\n%s", was, now)
	}
}

// sameRule compares rules independently of the order of their matches.
func sameRule(a, b string) bool {
	words := func(s string) map[string]int {
		all := map[string]int{}
		for _, w := range strings.Fields(s) {
			all[w]++
		}
		return all
	}
	x, y := words(a), words(b)
	if len(x) != len(y) {
		return false
	}
	for w, n := range x {
		if y[w] != n {
			return false
		}
	}
	return true
}
