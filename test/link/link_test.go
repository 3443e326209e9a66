// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// shownLink is an interface in the output of `lklctl link -o json`.
type shownLink struct {
	Name, Is, State, Address string
	MTU, Group               int
	Addresses                []string
}

// stackLinks returns the stack's interfaces, by name.
func stackLinks(k *kit.Talker) map[string]shownLink {
	k.T.Helper()
	var all []shownLink
	if err := json.Unmarshal([]byte(kit.Lklctl(k.T, "-n", k.Name, "link", "-o", "json")), &all); err != nil {
		k.T.Fatal(err)
	}
	by := map[string]shownLink{}
	for _, l := range all {
		by[l.Name] = l
	}
	return by
}

func onHost(t *testing.T, dev string) bool {
	t.Helper()
	_, err := os.Stat("/sys/class/net/" + dev)
	return err == nil
}

// TestLinkLive adds and removes interfaces of every kind while a program runs and
// transfers data. The devices and rules on the host must be removed with the interface.
// An error must leave nothing behind.
func TestLinkLive(t *testing.T) {
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) { linkLive(kit.NewSite(t), engine) })
	}
}

func linkLive(s *kit.Site, engine string) {
	t := s.T
	s.Web(kit.Nginx{})
	kit.Random(t, filepath.Join(s.Dir, "file"), 60<<20)
	before := kit.Take(t, s.Server)
	k := s.Talk("--engine", engine, "--if", "user")
	run := filepath.Join("/run/lklrun", k.Name)

	// A transfer over eth0 runs during the whole test.
	k.Say(`keep.update(pool=__import__("concurrent.futures").futures.ThreadPoolExecutor(1), h=__import__("hashlib"), t=__import__("time"), u=__import__("urllib.request").request)`)
	k.Say(`keep.__setitem__("sum", lambda r: (lambda h: [h.update(b) or keep["t"].sleep(.0005) for b in iter(lambda: r.read(32768), b"")] and h.hexdigest())(keep["h"].sha256()))`)
	k.Say(`keep.__setitem__("f", keep["pool"].submit(lambda: keep["sum"](keep["u"].urlopen("%s/file"))))`, kit.ServerURL)

	add := func(spec string, args ...string) string {
		t.Helper()
		return strings.TrimSpace(kit.Lklctl(t, append([]string{"-n", k.Name, "link", "add", spec}, args...)...))
	}
	bound := func(addr string) string {
		t.Helper()
		return k.Say(`socket.create_connection((%q, 80), 10, (%q, 0)).getsockname()[0]`, kit.ServerAddr, addr)
	}

	// Add an existing tap, and one that lklrun creates.
	if got := add("tap:tap0,group=7,mtu=1400,ip=" + kit.StackAddr + "/24"); got != "eth1" {
		t.Fatalf("the new interface is %q", got)
	}
	if got := bound(kit.StackAddr); got != "'"+kit.StackAddr+"'" {
		t.Errorf("a connection from the new address: %s", got)
	}
	s.Server.Run(t, "ping", "-c1", "-W5", kit.StackAddr)
	if got := add("tap:new9,ip=10.99.0.2/24"); got != "eth2" || !onHost(t, "new9") {
		t.Errorf("the second is %q", got)
	}
	if l := stackLinks(k); l["eth1"].Group != 7 || l["eth1"].MTU != 1400 || l["eth1"].Is != "tap:tap0" || !slices.Contains(l["eth2"].Addresses, "10.99.0.2/24") {
		t.Errorf("the stack's interfaces: %+v", l)
	}
	if list := kit.Lklctl(t, "list"); !strings.Contains(list, "eth0=user,eth1=tap:tap0,eth2=tap:new9") {
		t.Errorf("list:\n%s", list)
	}
	if journal, err := os.ReadFile(filepath.Join(run, "journal")); err != nil || !strings.Contains(string(journal), "new9") {
		t.Errorf("the journal: %q, %v", journal, err)
	}

	// Pass a descriptor of lklctl.
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs, ours := os.NewFile(uintptr(pair[0]), "link"), os.NewFile(uintptr(pair[1]), "far end")
	cmd := exec.Command(kit.Bin("lklctl"), "-n", k.Name, "link", "add", "fd:3,ip=10.98.0.2/24")
	cmd.ExtraFiles = []*os.File{theirs}
	if got := kit.OK(t, kit.Limit, cmd); got != "eth3\n" {
		t.Errorf("the descriptor's interface is %q", got)
	}
	theirs.Close()
	k.Say(`socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("10.98.0.1", 9))`)
	hears(t, ours, "\x0a\x62\x00\x01") // an ARP request for the interface's address
	linkErrors(s, k)
	ours.Close()

	// Remove them in a different order. The next interface gets a free number again.
	kit.Lklctl(t, "-n", k.Name, "link", "del", "eth1")
	kit.Lklctl(t, "-n", k.Name, "link", "del", "eth2")
	if l := stackLinks(k); len(l) != 3 || onHost(t, "new9") || !onHost(t, "tap0") {
		t.Errorf("after the deletion: %+v", l)
	}
	if journal, err := os.ReadFile(filepath.Join(run, "journal")); err != nil || strings.Contains(string(journal), "new9") {
		t.Errorf("the journal still has what was undone: %q, %v", journal, err)
	}
	if got := bound(kit.StackAddr); !strings.HasPrefix(got, "OSError") {
		t.Errorf("a connection from an address that went: %s", got)
	}
	if got := add("tap:tap0,ip=" + kit.StackAddr + "/24"); got != "eth1" {
		t.Errorf("the third is %q", got)
	}
	if got := bound(kit.StackAddr); got != "'"+kit.StackAddr+"'" {
		t.Errorf("a connection from the address that came back: %s", got)
	}

	if got, want := k.Say(`keep["f"].result()`), strings.Fields(kit.OK(t, kit.Limit, exec.Command("sha256sum", s.Dir+"/file")))[0]; got != "'"+want+"'" {
		t.Errorf("the transfer beside all this: %s, want %s", got, want)
	}
	if r := k.End(); r.Status != 0 {
		t.Errorf("the run: %v", r)
	}
	before.Same()
}

// hears waits for a frame that contains text.
func hears(t *testing.T, far *os.File, text string) {
	t.Helper()
	if err := unix.SetNonblock(int(far.Fd()), false); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(kit.Limit)
	tv := unix.NsecToTimeval(int64(kit.Limit))
	if err := unix.SetsockoptTimeval(int(far.Fd()), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2000)
	for time.Now().Before(end) {
		n, err := far.Read(buf)
		if err != nil {
			t.Fatalf("waiting for a frame with %q: %v", text, err)
		}
		if strings.Contains(string(buf[:n]), text) {
			return
		}
	}
	t.Errorf("no frame with %q", text)
}

// linkErrors requests impossible interfaces while eth0 to eth3 exist.
func linkErrors(s *kit.Site, k *kit.Talker) {
	t := s.T
	links := stackLinks(k)
	state, err := os.ReadFile(filepath.Join("/run/lklrun", k.Name, "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	host := kit.Take(t, s.Server)
	for spec, want := range map[string]string{
		"veth:x":                      `"veth:x": "veth": unknown interface type`,
		"tap:tap0":                    "tap tap0 is in use by",
		"tap:br0":                     "br0 is not a tap but",
		"fd:9":                        "descriptor 9 is not open; open it in the shell that starts lklctl",
		"tap:t3,ip=10.99.0.2/24":      `"tap:t3,ip=10.99.0.2/24": address 10.99.0.2 is already used by eth2`,
		"tap:t3,table=101":            "table 101 is already used by eth1",
		"tap:t3,qdisc=nosuch":         `"tap:t3,qdisc=nosuch": the stack has no queueing discipline "nosuch"`,
		"tap:t3,mtu=1500,ip=10.1.1.1": "has no prefix length",
	} {
		k.Refused(2, want, "link", "add", spec)
	}
	k.Refused(2, "eth7: not an interface that lklrun created; there are: eth0, eth1, eth2, eth3", "link", "del", "eth7")
	k.Refused(2, "lo: not an interface", "link", "del", "lo")
	if after := stackLinks(k); fmt.Sprint(after) != fmt.Sprint(links) {
		t.Errorf("the stack's interfaces after errors: %+v\nbefore: %+v", after, links)
	}
	if after, err := os.ReadFile(filepath.Join("/run/lklrun", k.Name, "state.json")); err != nil || string(after) != string(state) {
		t.Errorf("state.json after errors: %s, %v\nbefore: %s", after, err, state)
	}
	host.Same()
	// Add the maximum number of interfaces, and one more.
	for n := range 4 {
		kit.Lklctl(t, "-n", k.Name, "link", "add", fmt.Sprintf("tap:more%d,ip=10.97.%d.2/24", n, n))
	}
	k.Refused(2, "the limit is 8", "link", "add", "tap:t3")
	for n := range 4 {
		kit.Lklctl(t, "-n", k.Name, "link", "del", fmt.Sprintf("eth%d", 4+n))
	}
	host.Same()
}

// TestLinkKinds checks that the host resources of an interface (a device, rules,
// membership in a bridge) are created and removed with it.
func TestLinkKinds(t *testing.T) {
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			s := kit.NewSite(t)
			s.Web(kit.Nginx{})
			kit.Veth(t, kit.Host, "w0", s.Server, "w1")
			kit.Host.Addr(t, "w0", "10.74.0.9/24")
			s.Server.Addr(t, "w1", "10.74.0.1/24")
			before := kit.Take(t, s.Server)
			k := s.Talk("--engine", engine, "--if", "user")
			k.Say("1") // wait until the target runs
			for _, tc := range []struct{ spec, addr, server string }{
				{"macvtap:w0,ip=10.74.0.3/24", "10.74.0.3", "10.74.0.1"},
				{"raw:w0,ip=10.74.0.4/24", "10.74.0.4", "10.74.0.1"},
				{"tap:new8,bridge=br0,ip=10.73.0.21/24", "10.73.0.21", kit.ServerAddr},
				{"tap:new7,nat,ip=10.75.0.2/24", "10.75.0.2", kit.ServerAddr},
				{"user,ip=10.76.0.2/24", "10.76.0.2", kit.ServerAddr},
				{"raw:w0", "10.74.0.9", "10.74.0.1"}, // shares the host's address, so its reserved ports stay reserved until the end
			} {
				host := kit.Take(t, s.Server)
				if got := strings.TrimSpace(kit.Lklctl(t, "-n", k.Name, "link", "add", tc.spec)); got != "eth1" {
					t.Fatalf("%s: %q", tc.spec, got)
				}
				if got := k.Say(`socket.create_connection((%q, 80), 20, (%q, 0)).getsockname()[0]`, tc.server, tc.addr); got != "'"+tc.addr+"'" {
					t.Errorf("%s: a connection by it: %s", tc.spec, got)
				}
				kit.Lklctl(t, "-n", k.Name, "link", "del", "eth1")
				if tc.spec != "raw:w0" {
					host.Settles(kit.Limit)
				}
			}
			if r := k.End(); r.Status != 0 {
				t.Errorf("the run: %v", r)
			}
			before.Same()
		})
	}
}

// TestLinkKilled checks that the host resources of an interface that was added later
// are also removed when lklrun is killed.
func TestLinkKilled(t *testing.T) {
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			s := kit.NewSite(t)
			kit.Veth(t, kit.Host, "w0", s.Server, "w1")
			before := kit.Take(t, s.Server)
			k := s.Talk("--engine", engine, "--if", "user")
			k.Say("1") // wait until the target runs
			kit.Lklctl(t, "-n", k.Name, "link", "add", "tap:new7,nat,ip=10.75.0.2/24")
			kit.Lklctl(t, "-n", k.Name, "link", "add", "macvtap:w0,ip=10.74.0.31/24")
			k.Proc.Signal(unix.SIGKILL)
			before.Settles(kit.Limit)
		})
	}
}

// TestLinkHostStack checks that lklctl refuses to change the host's own kernel if that
// kernel is the stack.
func TestLinkHostStack(t *testing.T) {
	s := kit.NewSite(t)
	k := s.Talk("--stack", "host")
	k.Say("1") // wait until the target runs
	for _, args := range []string{
		"link add tap:new7", "link set lo mtu 1400", "addr add 10.66.0.1/24 lo", "mptcp endpoint add 10.66.0.1", "mptcp limits set subflows 1",
	} {
		k.Refused(2, "the host's own ", strings.Fields(args)...)
	}
	for args, tool := range map[string]string{
		"addr add 10.66.0.1/24 lo": "ip(8)",
		"kill dst 192.0.2.7":       "ss -K", "path lo delay 1ms": "tc(8)", "dmesg --console-level warn": "dmesg -n",
	} {
		k.Refused(2, "lklctl does not change; use "+tool, strings.Fields(args)...)
	}
	r := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "-n", k.Name, "guard", "--json"))
	if r.Status != 0 || !strings.Contains(r.Stdout, `"mode": ""`) { // no address is shared
		t.Errorf("guard: %v", r)
	}
	k.End()
}

// TestLinkSet checks that `link set` and `addr` change a running stack, for one
// interface or for a group.
func TestLinkSet(t *testing.T) {
	s := kit.NewSite(t)
	k := s.Talk("--if", s.TapIf()+",group=3", "--if", "user")
	k.Say("1") // wait until the target runs
	do := func(args string) string {
		t.Helper()
		return kit.Lklctl(t, append([]string{"-n", k.Name}, strings.Fields(args)...)...)
	}
	do("link set group 3 mtu 1400")
	do("link set eth1 down group 5")
	if l := stackLinks(k); l["eth0"].MTU != 1400 || l["eth1"].State != "down" || l["eth1"].Group != 5 {
		t.Errorf("%+v", l)
	}
	do("link set dev eth1 up mtu 1300 address 02:00:00:00:05:05")
	do("addr add 10.55.0.1/24 group 3")
	do("addr add fd55::1/64 eth1")
	if l := stackLinks(k); l["eth1"].MTU != 1300 || l["eth1"].State != "up" || l["eth1"].Address != "02:00:00:00:05:05" ||
		!slices.Contains(l["eth0"].Addresses, "10.55.0.1/24") || !slices.Contains(l["eth1"].Addresses, "fd55::1/64") {
		t.Errorf("%+v", l)
	}
	if text := do("addr"); !strings.Contains(text, "eth0       10.55.0.1/24\n") {
		t.Errorf("addr:\n%s", text)
	}
	if got := do("-o json addr del 10.55.0.1/24 group 3"); !strings.Contains(got, `"changed": 1`) {
		t.Errorf("%s", got)
	}
	for args, want := range map[string]string{
		"link set":                               "no interface given",
		"link set eth0":                          "eth0: no change given",
		"link set eth0 up down":                  "down of eth0: given twice",
		"link set eth0 mtu":                      "mtu: no number given",
		"link set eth0 mtu x":                    `mtu "x": expected a number`,
		"link set eth0 mtu 70000":                "mtu 70000: ",
		"link set eth0 address 1:2":              `address "1:2": expected a link address`,
		"link set eth0 address 01:00:00:00:00:0": `expected a link address`,
		"link set eth0 sideways":                 `unexpected argument "sideways"`,
		"link set group":                         "group: no number given",
		"link set group 99 up":                   "group 99: the group has no interfaces",
		"link set nosuch up":                     "nosuch: the stack has no such interface, it has lo, ",
		"addr add 10.55.0.1/24":                  "no interface given",
		"addr add 10.55.0.1 eth0":                "expected ADDRESS/PREFIX",
		"addr add 10.55.0.1/24 eth0 eth1":        `unexpected argument "eth1"`,
		"addr add " + kit.StackAddr + "/24 eth0": "eth0: " + kit.StackAddr + "/24 already exists",
		"addr del 10.56.0.1/24 group 3":          "eth0: 10.56.0.1/24 is not one of its addresses",
	} {
		k.Refused(2, want, strings.Fields(args)...)
	}
	k.End()
}

// TestLinkDelStopped stops lklhost while an interface is being removed. The user must
// still be able to end the run without delay.
func TestLinkDelStopped(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	// With this engine, the kernel is in the target and stops with it.
	k := s.Talk("-v", "--engine", "preload", "--if", s.TapIf(), "--if", "tap:new0,ip=10.75.0.1/24")
	k.Say("1")
	kit.Pause(t, kit.ProcessOf(t, k, "target_pid"), kit.Limit)
	del := kit.Start(t, exec.Command(kit.Bin("lklctl"), "-n", k.Name, "link", "del", "eth1"))
	kit.WaitFor(t, "the question to arrive", kit.Limit, func() bool {
		_, said := k.Proc.Output()
		return strings.Contains(said, "removing an interface")
	})
	kit.Pause(t, kit.ProcessOf(t, k, "host_pid"), kit.Limit)
	k.Proc.Signal(unix.SIGTERM)
	if r := k.Proc.Wait(kit.Limit); r.Status != 125 || !strings.Contains(r.Stderr, "does not answer") {
		t.Errorf("want 125: %v", r)
	}
	if r := del.Wait(kit.Limit); r.Status != 1 || len(kit.Lines(r.Stderr)) != 1 {
		t.Errorf("lklctl link del: %v", r)
	}
	before.Same()
}
