// SPDX-License-Identifier: Apache-2.0

package config

import (
	_ "embed"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// seed is the example file from the 2017 talk on stacks in phones.
//
//go:embed testdata/lkl-hijack.json
var seed string

// words lists a layer's words and its notes.
func words(l Layer) []string {
	c := Config{Words: l.Words}
	var all []string
	for _, v := range c.Explain() {
		all = append(all, v.Setting+" = "+v.Value)
	}
	return append(all, l.Notes...)
}

func TestHijackFile(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"seed": {seed, []string{
			"interfaces[0] = macvtap:/dev/tap23,ip=202.214.86.168/26,gw=202.214.86.129,mac=02:87:f8:27:22:02",
			"sysctl net.ipv4.tcp_wmem = 4096 87380 2147483647", "sysctl net.mptcp.mptcp_debug = 1", "delay = 500000",
			"f:2: gateway: 10.206.211.1 is not in the network of any interface; ignored",
			"f:14: singlecpu: has no effect here, because the stack's kernel has one CPU; use taskset(1) to choose the host's CPUs",
		}},
		"two interfaces": {`{"gateway": "10.0.1.1", "gateway6": "fe80::1", "nameserver": "192.0.2.53", "debug": "0x101", "interfaces": [
			{"type": "raw", "param": "wlan0", "ip": "10.0.0.2", "masklen": 24, "ifgateway": "10.0.0.1", "mtu": "1400", "qdisc": "root|fq", "offload": "0x8883"},
			{"type": "raw-ipenc", "param": "rmnet0", "ip": "10.0.1.2", "masklen": "24", "ipv6": "fd00::2", "masklen6": "64", "offload": "0"}]}`, []string{
			"interfaces[0] = raw:wlan0,ip=10.0.0.2/24,gw=10.0.0.1,mtu=1400,qdisc=fq,offload=0x8883",
			"interfaces[1] = rawip:rmnet0,ip=10.0.1.2/24,ip6=fd00::2/64,gw=10.0.1.1,gw6=fe80::1,offload=off",
			"dns[0] = 192.0.2.53", "verbose = on",
			"f:1: debug: the bits 0x300, which make LKL wait at the start and end, have no effect here; use lklctl while the program runs",
		}},
		"a phone's": {`{"gateway": "10.9.9.9", "interfaces": [
			{"type": "raw", "param": "wlan0", "ip": "10.0.0.2", "masklen": "24", "ifgateway": "10.0.0.1", "mac": "02:00:00:00:00:05"},
			{"type": "raw-ipenc", "param": "rmnet0", "ip": "10.1.0.5", "masklen": "30", "ifgateway": "10.9.9.9"}], "singlecpu": "0"}`, []string{
			"interfaces[0] = raw:wlan0,ip=10.0.0.2/24,gw=10.0.0.1,mac=02:00:00:00:00:05", "interfaces[1] = rawip:rmnet0,ip=10.1.0.5/30,gw=10.9.9.9",
		}},
		"boot_cmdline": {`{"boot_cmdline": "mem=1G ip=dhcp loglevel=7", "interfaces": [{"type": "tap", "param": "t0", "mac": "02:00:00:00:00:01"}]}`, []string{
			"interfaces[0] = tap:t0,mac=02:00:00:00:00:01,dhcp", "mem = 1G", "cmdline = loglevel=7",
		}},
		"neigh": {`{"interfaces": [{"type": "tap", "param": "t0", "neigh": "10.0.0.1|02:00:00:00:00:01;fd00::1|02:00:00:00:00:02"}]}`, []string{
			"interfaces[0] = tap:t0,neigh=10.0.0.1|02:00:00:00:00:01,neigh=fd00::1|02:00:00:00:00:02",
		}},
		"files": {`{"mount": "proc,sysfs", "dump": "/sysfs/class/net/lo/mtu,/proc/version", "debug": ""}`, []string{
			"mount[0] = proc", "mount[1] = sysfs", "dump[0] = /sysfs/class/net/lo/mtu", "dump[1] = /proc/version",
		}},
		"quotes": {`{"sysctl": "net.ipv4.tcp_congestion_control=\"bbr\"; net.ipv4.tcp_wmem=\"4096 16384 30000000\";"}`, []string{
			"sysctl net.ipv4.tcp_congestion_control = bbr", "sysctl net.ipv4.tcp_wmem = 4096 16384 30000000",
		}},
		"own gateway": {`{"gateway": "10.0.0.9", "interfaces": [{"type": "tap", "param": "t0", "ip": "10.0.0.2", "masklen": "24", "ifgateway": "10.0.0.1"}]}`, []string{
			"interfaces[0] = tap:t0,ip=10.0.0.2/24,gw=10.0.0.1",
			"f:1: gateway: interfaces[0] has its own gateway 10.0.0.1, which takes precedence",
		}},
	} {
		f, err := ParseFile("f", []byte(tc.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(tc.want, words(f.Layer)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
		for _, w := range f.Words["sysctl"] {
			if !strings.HasPrefix(w.Text, "-") {
				t.Errorf("%s: %s is not optional", name, w.Text)
			}
		}
	}
}

func TestHijackEnvironment(t *testing.T) {
	l, err := HijackEnvironment(strings.Fields(`LKL_HIJACK_NET_IFTYPE=tap LKL_HIJACK_NET_IFPARAMS=t0 LKL_HIJACK_NET_IP=10.0.0.2 LKL_HIJACK_NET_NETMASK_LEN=24
		LKL_HIJACK_NET_IFGATEWAY=10.0.0.1 LKL_HIJACK_NET_IPV6=fd00::2 LKL_HIJACK_NET_NETMASK6_LEN=64 LKL_HIJACK_NET_GATEWAY=10.0.0.1
		LKL_HIJACK_NET_GATEWAY6=fd00::1 LKL_HIJACK_NET_MAC=02:00:00:00:00:01 LKL_HIJACK_NET_MTU=1400 LKL_HIJACK_NET_NEIGHBOR=10.0.0.7|02:00:00:00:00:07
		LKL_HIJACK_NET_QDISC=root|fq LKL_HIJACK_OFFLOAD=0xc803 LKL_HIJACK_SYSCTL=net.ipv4.tcp_ecn=1 LKL_HIJACK_BOOT_CMDLINE=mem=64M LKL_HIJACK_MOUNT=debugfs
		LKL_HIJACK_DUMP=/proc/version LKL_HIJACK_DEBUG=1 LKL_HIJACK_SINGLE_CPU=2 LKL_HIJACK_DELAY_MAIN=5 LKL_HIJACK_NAMESERVER=192.0.2.53`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"interfaces[0] = tap:t0,ip=10.0.0.2/24,ip6=fd00::2/64,gw=10.0.0.1,gw6=fd00::1,mac=02:00:00:00:00:01,mtu=1400,qdisc=fq,offload=0xc803,neigh=10.0.0.7|02:00:00:00:00:07",
		"sysctl net.ipv4.tcp_ecn = 1", "dns[0] = 192.0.2.53", "mem = 64M", "verbose = on", "delay = 5", "mount[0] = debugfs", "dump[0] = /proc/version",
		"LKL_HIJACK_SINGLE_CPU (singlecpu): has no effect here, because the stack's kernel has one CPU; use taskset(1) to choose the host's CPUs",
	}
	if diff := cmp.Diff(want, words(l)); diff != "" {
		t.Error(diff)
	}
	if l, err = HijackEnvironment([]string{"LKL_HIJACK_NET_TAP=t1"}); err != nil || l.Words["interfaces"][0].Text != "tap:t1" {
		t.Errorf("%v, %v", l, err)
	}
	if l, err = HijackEnvironment([]string{"LKL_HIJACK_NET_MTU=1400"}); err != nil || len(l.Notes) != 1 {
		t.Errorf("%v, %v", l, err)
	}
	for has, lacks := range map[string]string{
		"LKL_HIJACK_NET_IP=10.1.1.1":     "LKL_HIJACK_NET_NETMASK_LEN",
		"LKL_HIJACK_NET_NETMASK6_LEN=64": "LKL_HIJACK_NET_IPV6",
	} {
		name, _, _ := strings.Cut(has, "=")
		want := name + ": requires " + lacks + ", which is missing; set both"
		if _, err = HijackEnvironment([]string{"LKL_HIJACK_NET_TAP=t0", has}); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if l, err = HijackEnvironment([]string{"LKL_HIJACK_NOSUCH=1", "LKL_HIJACK_EMPTY=", "LKL_HIJACK_CONFIG_FILE=/x"}); err != nil ||
		!slices.Equal(l.Notes, []string{"LKL_HIJACK_NOSUCH: unknown LKL variable; ignored"}) {
		t.Errorf("%v, %v", l, err)
	}
	if _, err = HijackEnvironment([]string{"LKL_HIJACK_NET_IFTYPE=vde", "LKL_HIJACK_NET_IFPARAMS=x"}); err == nil || !strings.HasPrefix(err.Error(), `LKL_HIJACK_NET_IFTYPE: "vde": lklrun does not support this type; use tap, macvtap or raw`) {
		t.Error(err)
	}
}

// Programs that are linked with LKL read two variables of their own. The hijack
// library's variables override these.
func TestHijackLinked(t *testing.T) {
	for _, c := range []struct{ environ, want []string }{
		{[]string{"LKL_SYSCTL=net.ipv4.tcp_wmem=4096 87380 100000000;net.ipv4.tcp_ecn=1", "LKL_BOOT_CMDLINE=mem=1G"},
			[]string{"sysctl net.ipv4.tcp_wmem = 4096 87380 100000000", "sysctl net.ipv4.tcp_ecn = 1", "mem = 1G"}},
		{[]string{"LKL_SYSCTL=net.ipv4.tcp_ecn=1", "LKL_HIJACK_SYSCTL=net.ipv4.tcp_ecn=2"}, []string{"sysctl net.ipv4.tcp_ecn = 2"}},
	} {
		l, err := HijackEnvironment(c.environ)
		if diff := cmp.Diff(c.want, words(l)); diff != "" || err != nil {
			t.Error(diff, err)
		}
	}
	if _, err := HijackEnvironment([]string{"LKL_SYSCTL=nonsense"}); err == nil || !strings.HasPrefix(err.Error(), "LKL_SYSCTL: ") {
		t.Error(err)
	}
}
