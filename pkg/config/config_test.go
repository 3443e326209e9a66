// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var cmpAddr = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func TestParseInterface(t *testing.T) {
	pfx := netip.MustParsePrefix
	for spec, want := range map[string]Interface{
		"user":          {Type: "user"},
		"user,mtu=1500": {Type: "user", MTU: 1500},
		"tap:t0,ip=10.0.0.2/24,gw=10.0.0.1": {
			Type: "tap", Device: "t0",
			IP: []netip.Prefix{pfx("10.0.0.2/24")}, GW: netip.MustParseAddr("10.0.0.1"),
		},
		"fd:7,ip=10.0.0.2/24,ip=10.0.1.2/24,ip6=fd00::2/64,gw6=fe80::1,mac=02:00:00:00:00:01": {
			Type: "fd", FD: 7,
			IP:  []netip.Prefix{pfx("10.0.0.2/24"), pfx("10.0.1.2/24")},
			IP6: []netip.Prefix{pfx("fd00::2/64")}, GW6: netip.MustParseAddr("fe80::1"),
			MAC: MAC{2, 0, 0, 0, 0, 1},
		},
		"tap:t,dhcp,dhcp6=on,slaac,dns=192.0.2.53,dns=fd00::53,group=7,qdisc=fq,offload=0x883,backup,fullmesh=off,table=200,vlan=5,bridge=br0,signal": {
			Type: "tap", Device: "t", DHCP: true, DHCP6: true, SLAAC: true,
			DNS:   []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("fd00::53")},
			Group: 7, Qdisc: "fq", Offload: "0x883", Backup: true, Signal: true, Table: 200, VLAN: 5, Own: map[string]string{"bridge": "br0"},
		},
		"macvtap:eth0,mode=vepa":                {Type: "macvtap", Device: "eth0", Own: map[string]string{"mode": "vepa"}},
		"macvtap:/dev/tap23":                    {Type: "macvtap", Device: "/dev/tap23"},
		"raw:wlan0":                             {Type: "raw", Device: "wlan0"},
		"rawip:rmnet0,gw=10.0.0.1":              {Type: "rawip", Device: "rmnet0", GW: netip.MustParseAddr("10.0.0.1")},
		"rawip:ppp0,ip=10.1.0.5/30,gw=10.9.9.9": {Type: "rawip", Device: "ppp0", IP: []netip.Prefix{pfx("10.1.0.5/30")}, GW: netip.MustParseAddr("10.9.9.9")},
		"tap:x,ip=10.0.0.0/31":                  {Type: "tap", Device: "x", IP: []netip.Prefix{pfx("10.0.0.0/31")}},
	} {
		got, err := ParseInterface(spec)
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		if diff := cmp.Diff(want, got, cmpAddr); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", spec, diff)
		}
	}
}

// Each line is the user's error message after `lklrun: --if `.
func TestParseInterfaceErrors(t *testing.T) {
	for spec, want := range map[string]string{
		"":                     `"": no interface type; expected user, wire:NAME, udp:HOST:PORT, wg:FILE, tap:NAME, macvtap:DEV, raw:DEV, rawip:DEV, clat:PREFIX or fd:N`,
		"lo":                   `"lo": an interface of this host; to use it, write raw:lo or, unless it is wireless, macvtap:lo`,
		"veth:x":               `"veth:x": "veth": unknown interface type; expected user, wire:NAME, udp:HOST:PORT, wg:FILE, tap:NAME, macvtap:DEV, raw:DEV, rawip:DEV, clat:PREFIX or fd:N`,
		"user:x":               `"user:x": user: unexpected ":x"; expected user[,KEY=VALUE]`,
		"tap":                  `"tap": tap: no device name; expected tap:NAME`,
		"tap:a/b":              `"tap:a/b": tap: "a/b" is not a valid device name; expected tap:NAME`,
		"tap:sixteen-letters0": `"tap:sixteen-letters0": tap: device name "sixteen-letters0" is longer than 15 characters; expected tap:NAME`,
		"fd:x":                 `"fd:x": fd: "x"; expected the number of an open descriptor, at least 3`,
		"fd:1":                 `"fd:1": fd: "1"; expected the number of an open descriptor, at least 3`,
		"tap:t0,ip=10.0.0.300/24": `"tap:t0,ip=10.0.0.300/24": ip: "10.0.0.300/24" is not an IPv4 address with its prefix length; ` +
			`expected ADDRESS/PREFIX, such as 192.0.2.1/24`,
		"tap:t0,ip=10.0.0.3":                  `"tap:t0,ip=10.0.0.3": ip: "10.0.0.3" has no prefix length; expected ADDRESS/PREFIX, such as 192.0.2.1/24`,
		"tap:t0,ip=fd00::1/64":                `"tap:t0,ip=fd00::1/64": ip: "fd00::1/64" is not an IPv4 address; use ip6= for it`,
		"tap:t0,ip6=10.0.0.1/24":              `"tap:t0,ip6=10.0.0.1/24": ip6: "10.0.0.1/24" is not an IPv6 address; use ip= for it`,
		"tap:t0,ip=10.0.0.0/24":               `"tap:t0,ip=10.0.0.0/24": ip: 10.0.0.0 is the network or broadcast address of 10.0.0.0/24; expected a host address in it`,
		"tap:t0,ip=10.0.0.255/24":             `"tap:t0,ip=10.0.0.255/24": ip: 10.0.0.255 is the network or broadcast address of 10.0.0.0/24; expected a host address in it`,
		"tap:t0,ip=127.0.0.2/8":               `"tap:t0,ip=127.0.0.2/8": ip: 127.0.0.2 cannot be the address of an interface`,
		"tap:t0,ip=10.0.0.1/24,ip=10.0.0.1/8": `"tap:t0,ip=10.0.0.1/24,ip=10.0.0.1/8": ip: 10.0.0.1: given twice`,
		"tap:t0,addr=1":                       `"tap:t0,addr=1": "addr": unknown key; expected one of ip, ip6, gw, gw6, mac, mtu, dhcp, dhcp6, slaac, dns, group, qdisc, offload, backup, signal, fullmesh, table, vlan, neigh, route, tcp, delay, jitter, rate, limit, loss, duplicate, reorder, seed, key, via, bridge, nat, multiqueue, mode, over`,
		"tap:t0,":                             `"tap:t0,": "": unknown key; expected one of ip, ip6, gw, gw6, mac, mtu, dhcp, dhcp6, slaac, dns, group, qdisc, offload, backup, signal, fullmesh, table, vlan, neigh, route, tcp, delay, jitter, rate, limit, loss, duplicate, reorder, seed, key, via, bridge, nat, multiqueue, mode, over`,
		"tap:t0,ip":                           `"tap:t0,ip": ip: no value; expected ip=ADDRESS/PREFIX`,
		"tap:t0,mtu=1,mtu=2":                  `"tap:t0,mtu=1,mtu=2": mtu: "1"; expected a number from 68 to 65520`,
		"tap:t0,mtu=1500,mtu=2":               `"tap:t0,mtu=1500,mtu=2": mtu: given twice`,
		"tap:t0,mac=1:2":                      `"tap:t0,mac=1:2": mac: "1:2" is not an Ethernet address; expected xx:xx:xx:xx:xx:xx`,
		"tap:t0,mac=01:00:00:00:00:01": `"tap:t0,mac=01:00:00:00:00:01": mac: 01:00:00:00:00:01 is a group or zero address; ` +
			`expected a unicast address, such as 02:00:00:00:00:01`,
		"tap:t0,gw=10.0.0.1":                          `"tap:t0,gw=10.0.0.1": gw: 10.0.0.1 requires an interface address; add ip=ADDRESS/PREFIX`,
		"tap:t0,ip=10.0.0.2/24,gw=10.0.1.1":           `"tap:t0,ip=10.0.0.2/24,gw=10.0.1.1": gw: 10.0.1.1 is not within 10.0.0.0/24`,
		"tap:t0,ip=10.0.0.2/24,gw=10.0.0.255":         `"tap:t0,ip=10.0.0.2/24,gw=10.0.0.255": gw: 10.0.0.255 is the network or broadcast address of 10.0.0.0/24; expected a router address in it`,
		"tap:t0,ip=10.0.0.2/24,gw=10.0.0.0":           `"tap:t0,ip=10.0.0.2/24,gw=10.0.0.0": gw: 10.0.0.0 is the network or broadcast address of 10.0.0.0/24; expected a router address in it`,
		"tap:t0,ip6=fe80::1/64,gw6=fe80::1":           `"tap:t0,ip6=fe80::1/64,gw6=fe80::1": gw6: fe80::1 is the interface's own address`,
		"tap:t0,ip=10.0.0.2/24,gw=10.0.0.2":           `"tap:t0,ip=10.0.0.2/24,gw=10.0.0.2": gw: 10.0.0.2 is the interface's own address`,
		"tap:t0,ip6=fd00::2/64,mtu=1000":              `"tap:t0,ip6=fd00::2/64,mtu=1000": mtu: 1000 is too small for IPv6; expected at least 1280`,
		"passt,mtu=9000":                              `"passt,mtu=9000": "passt": no longer an interface type; use user, whose gateway supports more protocols`,
		"macvtap:":                                    `"macvtap:": macvtap: no device name; expected macvtap:DEV, or macvtap:/dev/tapN for an existing macvtap`,
		"rawip":                                       `"rawip": rawip: no device name; expected rawip:DEV`,
		"tap:t0,dhcp=yes":                             `"tap:t0,dhcp=yes": dhcp: "yes"; expected on or off`,
		"tap:t0,dhcp=":                                `"tap:t0,dhcp=": dhcp: no value; expected dhcp=on|off`,
		"user,dhcp":                                   `"user,dhcp": dhcp: the user-mode gateway assigns the addresses; remove it`,
		"user,slaac":                                  `"user,slaac": slaac: the user-mode gateway assigns the addresses; remove it`,
		"rawip:x,dhcp":                                `"rawip:x,dhcp": dhcp: is only supported by interfaces with Ethernet addresses: wire, tap, macvtap, raw and fd`,
		"rawip:x,mac=2:0:0:0:0:1":                     `"rawip:x,mac=2:0:0:0:0:1": mac: "2:0:0:0:0:1" is not an Ethernet address; expected xx:xx:xx:xx:xx:xx`,
		"rawip:x,vlan=5":                              `"rawip:x,vlan=5": vlan: is only supported by wire, tap, macvtap, raw and fd`,
		"tap:t0,vlan=4095":                            `"tap:t0,vlan=4095": vlan: "4095"; expected a number from 1 to 4094`,
		"tap:t0,group=-1":                             `"tap:t0,group=-1": group: "-1"; expected a number from 1 to 2147483647`,
		"tap:t0,table=254":                            `"tap:t0,table=254": table: 254 is a table of the kernel; expected another number, such as 100`,
		"tap:t0,table=x":                              `"tap:t0,table=x": table: "x"; expected a number from 1 to 2147483647`,
		"tap:t0,qdisc=a b":                            `"tap:t0,qdisc=a b": qdisc: "a b" is not a queueing discipline; expected one such as fq, fq_codel or pfifo_fast`,
		"tap:t0,offload=0xg":                          `"tap:t0,offload=0xg": offload: "0xg"; expected on, off or a mask of virtio features, such as 0x883`,
		"user,offload=on":                             `"user,offload=on": offload: is only supported by wire, tap, macvtap, raw, rawip and fd`,
		"raw:x,bridge=br0":                            `"raw:x,bridge=br0": bridge: is only supported by tap`,
		"tap:x,bridge=a/b":                            `"tap:x,bridge=a/b": bridge: "a/b" is not a valid device name`,
		"raw:x,nat":                                   `"raw:x,nat": nat: is only supported by tap`,
		"tap:x,nat,bridge=b":                          `"tap:x,nat,bridge=b": nat: a bridged tap has addresses of the bridge's network; remove nat or bridge`,
		"tap:x,nat,dhcp":                              `"tap:x,nat,dhcp": nat: nat assigns the addresses; remove dhcp, dhcp6 and slaac`,
		"tap:x,nat,vlan=5":                            `"tap:x,nat,vlan=5": nat: the host's side of the tap is not in a VLAN; remove nat or vlan`,
		"tap:x,mode=vepa":                             `"tap:x,mode=vepa": mode: is only supported by macvtap`,
		"macvtap:x,mode=y":                            `"macvtap:x,mode=y": mode: "y"; expected bridge, private, vepa or passthru`,
		"macvtap:/dev/tap1,mode=vepa":                 `"macvtap:/dev/tap1,mode=vepa": mode: /dev/tap1 exists and keeps its mode; remove mode=`,
		"tap:x,multiqueue":                            `"tap:x,multiqueue": multiqueue: all runs that share the tap need the same Ethernet address; add the same mac= to each`,
		"tap:x,multiqueue,mac=02:00:00:00:00:01,dhcp": `"tap:x,multiqueue,mac=02:00:00:00:00:01,dhcp": multiqueue: only one of the runs that share the tap would receive the answers; remove dhcp, dhcp6 and slaac`,
		"tap:x,multiqueue,mac=02:00:00:00:00:01,nat":  `"tap:x,multiqueue,mac=02:00:00:00:00:01,nat": multiqueue: the first run to end would remove it for the others; remove nat and bridge, and set them up before the runs`,
		"user,multiqueue":                             `"user,multiqueue": multiqueue: is only supported by tap`,
		"tap:x,signal,fullmesh":                       `"tap:x,signal,fullmesh": fullmesh: MPTCP does not support signal together with fullmesh; remove one`,
		"tap:x,dhcp,gw=10.0.0.1":                      `"tap:x,dhcp,gw=10.0.0.1": gw: DHCP sets the gateway; remove gw or dhcp`,
		"tap:x,slaac,gw6=fe80::1":                     `"tap:x,slaac,gw6=fe80::1": gw6: SLAAC sets the gateway; remove gw6 or slaac`,
		"tap:x,slaac,mtu=1000":                        `"tap:x,slaac,mtu=1000": mtu: 1000 is too small for IPv6; expected at least 1280`,
		"tap:x,neigh=10.0.0.1":                        `"tap:x,neigh=10.0.0.1": neigh: "10.0.0.1"; expected IP|MAC, such as 192.0.2.1|02:00:00:00:00:01`,
		"tap:x,neigh=h|02:00:00:00:00:01":             `"tap:x,neigh=h|02:00:00:00:00:01": neigh: "h" is not a neighbour address`,
		"rawip:x,neigh=10.0.0.1|02:00:00:00:00:01":    `"rawip:x,neigh=10.0.0.1|02:00:00:00:00:01": neigh: is only supported by interfaces with Ethernet addresses: wire, tap, macvtap, raw and fd`,
		"tap:x,dns=ns":                                `"tap:x,dns=ns": dns: "ns"; expected the IP address of a name server`,
		"tap:x,dns=1.1.1.1,dns=1.1.1.1":               `"tap:x,dns=1.1.1.1,dns=1.1.1.1": dns: 1.1.1.1: given twice`,
		"user,ip6=fd00::2/64":                         `"user,ip6=fd00::2/64": ip6: the user-mode gateway assigns the IPv6 address if the host has IPv6; remove it`,
		"user,ip=10.0.0.2/24,ip=10.0.0.3/24":          `"user,ip=10.0.0.2/24,ip=10.0.0.3/24": ip: the user-mode gateway supports only one address`,
		"user,ip=10.0.0.1/30":                         `"user,ip=10.0.0.1/30": ip: 10.0.0.1/30 has no room for the gateway's addresses; expected a prefix length from 8 to 29`,

		"tap:x,ip=10.0.0.2/24,route=10.1.0.0/24":                           `"tap:x,ip=10.0.0.2/24,route=10.1.0.0/24": route: "10.1.0.0/24"; expected PREFIX|GATEWAY, such as 198.51.100.0/24|192.0.2.1`,
		"tap:x,ip=10.0.0.2/24,route=10.1.0.1/24|10.0.0.1":                  `"tap:x,ip=10.0.0.2/24,route=10.1.0.1/24|10.0.0.1": route: 10.1.0.1/24 has bits set after the prefix; expected 10.1.0.0/24`,
		"tap:x,ip=10.0.0.2/24,route=0.0.0.0/0|10.0.0.1":                    `"tap:x,ip=10.0.0.2/24,route=0.0.0.0/0|10.0.0.1": route: 0.0.0.0/0 is the default route; use gw= for it`,
		"tap:x,ip=10.0.0.2/24,route=10.1.0.0/24|fd00::1":                   `"tap:x,ip=10.0.0.2/24,route=10.1.0.0/24|fd00::1": route: "fd00::1" is not an IPv4 address`,
		"tap:x,ip=10.0.0.2/24,route=10.1.0.0/24|10.9.0.1":                  `"tap:x,ip=10.0.0.2/24,route=10.1.0.0/24|10.9.0.1": route: 10.9.0.1 is not within 10.0.0.0/24`,
		"tap:x,ip=10.0.0.2/24,route=n|10.0.0.1":                            `"tap:x,ip=10.0.0.2/24,route=n|10.0.0.1": route: "n" is not the prefix of a network; expected one such as 198.51.100.0/24`,
		"tap:x,route=10.1.0.0/24|10.9.0.1":                                 `"tap:x,route=10.1.0.0/24|10.9.0.1": route: 10.9.0.1 requires an interface address; add ip=ADDRESS/PREFIX`,
		"tap:x,dhcp,route=10.1.0.0/24|10.0.0.1,route=10.1.0.0/24|10.0.0.3": `"tap:x,dhcp,route=10.1.0.0/24|10.0.0.1,route=10.1.0.0/24|10.0.0.3": route: 10.1.0.0/24: given twice`,
		"user,route=10.1.0.0/24|10.0.0.1":                                  `"user,route=10.1.0.0/24|10.0.0.1": route: the user-mode gateway is the only router; remove it`,
	} {
		_, err := ParseInterface(spec)
		if err == nil {
			t.Errorf("%s: accepted", spec)
		} else if err.Error() != want {
			t.Errorf("%s:\n got %s\nwant %s", spec, err, want)
		}
	}
}

func TestCheckInterfaces(t *testing.T) {
	for _, tc := range []struct{ a, b, want string }{
		{"tap:t0", "tap:t1", ""},
		{"user", "user", ""},
		{"tap:t0", "tap:t0,mtu=1500", `"tap:t0,mtu=1500": tap:t0 is already used by eth0`},
		{"macvtap:a", "macvtap:a", ""},
		{"macvtap:a,mode=passthru", "macvtap:b,mode=passthru", ""},
		{"macvtap:a,mode=passthru", "macvtap:a", `"macvtap:a": a has two macvtaps, and mode passthru (eth0) requires the device for itself; choose mode=bridge for all`},
		{"macvtap:a,mode=bridge", "macvtap:a,mode=passthru", `"macvtap:a,mode=passthru": a has two macvtaps, and mode passthru (eth1) requires the device for itself; choose mode=bridge for all`},
		{"macvtap:/dev/tap1", "macvtap:/dev/tap1", `"macvtap:/dev/tap1": macvtap:/dev/tap1 is already used by eth0`},
		{"user,table=101", "user", `"user,table=101": table 101 is already used by eth1`},
		{"user,table=7", "user,table=7", `"user,table=7": table 7 is already used by eth0`},
		{"user,table=101", "user,table=100", ""},
		{"tap:a,ip=10.0.0.1/24", "tap:b,ip=10.0.0.1/8", `"tap:b,ip=10.0.0.1/8": address 10.0.0.1 is already used by eth0`},
	} {
		a, err := ParseInterface(tc.a)
		if err != nil {
			t.Fatal(err)
		}
		b, err := ParseInterface(tc.b)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := CheckInterfaces([]Interface{a, b}); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s + %s: got %q, want %q", tc.a, tc.b, got, tc.want)
		}
	}
}

func TestValues(t *testing.T) {
	for in, want := range map[string]uint64{"64M": 64 << 20, "1g": 1 << 30, "65536K": 64 << 20, "64MiB": 64 << 20, "67108864": 64 << 20} {
		got, err := ParseMem(in)
		if err != nil || got != want {
			t.Errorf("ParseMem(%q) = %d, %v; want %d", in, got, err, want)
		}
		if back, err := ParseMem(FormatMem(got)); err != nil || back != got {
			t.Errorf("FormatMem(%d) = %q", got, FormatMem(got))
		}
	}
	for _, in := range []string{"", "M", "-1M", "1T", "64MM", "1M", "99999999999G", "64 M"} {
		if n, err := ParseMem(in); err == nil {
			t.Errorf("ParseMem(%q) = %d", in, n)
		}
	}
	for in, want := range map[string]Sysctl{
		"net.ipv4.tcp_rmem=4096 1 2":            {Name: "net.ipv4.tcp_rmem", Value: "4096 1 2"},
		"net/ipv4/conf/eth0.100/rp_filter = 0 ": {Name: "net/ipv4/conf/eth0.100/rp_filter", Value: "0"},
		"-net.ipv4.x=1":                         {Name: "net.ipv4.x", Value: "1", Optional: true},
	} {
		if got, err := ParseSysctl(in); err != nil || got != want {
			t.Errorf("ParseSysctl(%q) = %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "a", "=1", "a=", "../etc=1", "a..b=1", "/x=1", "a b=1", "a=1\n2"} {
		if got, err := ParseSysctl(in); err == nil {
			t.Errorf("ParseSysctl(%q) = %v", in, got)
		}
	}
	if _, err := ParseDNS("ns.example"); err == nil {
		t.Error("a name was accepted as a name server's address")
	}
}

// A parsed interface can be formatted in both forms and parsed again.
func FuzzParseInterface(f *testing.F) {
	for _, s := range []string{
		"user", "tap:t0,ip=10.0.0.2/24,gw=10.0.0.1,mac=02:00:00:00:00:01,mtu=9000",
		"fd:3,ip6=fd00::1/64,gw6=fe80::1", "tap:a,ip=0.0.0.1/0", "tap:a,ip6=::ffff:1.2.3.4/96", "tap:,ip==", "fd:99999999999",
		"raw:a,dhcp=off,dns=1.1.1.1,group=7,qdisc=fq,offload=0x0F,backup,table=9,vlan=3,neigh=10.0.0.1|02:00:00:00:00:01", "fd:3,ip=10.0.0.2/24,route=10.1.0.0/16|10.0.0.1", "macvtap:/dev/tap1,slaac,signal",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		i, err := ParseInterface(spec)
		if err != nil {
			return
		}
		again, err := ParseInterface(i.String())
		if err != nil {
			t.Fatalf("%q was read, its own spelling %q is not: %v", spec, i.String(), err)
		}
		if diff := cmp.Diff(i, again, cmpAddr); diff != "" {
			t.Fatalf("%q: %s", spec, diff)
		}
		data, err := json.Marshal(i)
		if err != nil {
			t.Fatal(err)
		}
		var back Interface
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if diff := cmp.Diff(i, back, cmpAddr); diff != "" {
			t.Fatalf("%q as JSON: %s", spec, diff)
		}
	})
}

func FuzzParseValues(f *testing.F) {
	f.Add("64M")
	f.Add("net.ipv4.ip_forward=1")
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseMem(s); err == nil {
			if back, err := ParseMem(FormatMem(n)); err != nil || back != n {
				t.Fatalf("%q: %d became %d, %v", s, n, back, err)
			}
		}
		if k, err := ParseSysctl(s); err == nil && (k.Name == "" || k.Value == "") {
			t.Fatalf("%q: %+v", s, k)
		}
	})
}
