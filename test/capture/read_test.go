// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestTsharkReads checks that tshark reads every kind of file and finds the expected
// content: interfaces with and without Ethernet, and the loopback; directions; comments;
// MPTCP's options; DHCP packets that precede the start of the program.
func TestTsharkReads(t *testing.T) {
	t.Parallel()
	p := kit.NewPhone(t)
	kit.Need(t, "tshark", "capinfos")
	dir := kit.Dir(t)
	kit.WriteFile(t, dir+"/hello", "hello\n")
	p.Server.Nginx(t, kit.Nginx{Root: dir, MPTCP: true})
	end := dir + "/end"
	target := kit.Start(t, p.Host.Command(kit.Bin("lklrun"), "--name", p.Instance, "--capture", dir+"/run.pcapng", "--capture", dir+"/run0.pcapng,if=eth0,snap=200,filter=udp port 67",
		"--if", p.Ifs[0], "--if", p.Ifs[1], "--", "sh", "-c", `/usr/bin/python3 `+kit.TestData("asks_until.py")+` "$@" & asks=$!; /usr/bin/python3 `+kit.TestData("asks_often.py")+` "$@" & /usr/bin/python3 `+kit.TestData("asks_often.py")+` 10.74.2.1 & wait $asks`, "sh", p.Addr, end))
	p.Until("a connection", target, func() bool { return tokenIn(p) != "" })
	token := tokenIn(p)
	for _, args := range [][]string{
		{"-w", "all.pcapng", "-c", "600"},
		{"-w", "all.pcap", "-c", "200"},
		{"-w", "ether.pcap", "-i", "eth0", "-c", "50"},
		{"-w", "raw.pcapng", "-i", "eth1", "-c", "3"},
		{"-w", "raw.pcap", "-i", "eth1", "-c", "3"},
		{"-w", "lo.pcapng", "-i", "lo", "-c", "20"},
		{"-w", "ring", "-G", "1", "-W", "2", "-s", "60"},
	} {
		args[1] = filepath.Join(dir, args[1])
		kit.Lklctl(t, append([]string{"capture", "-n", p.Instance}, args...)...)
	}
	// The stack is asked for the owners of packets at intervals of many times the
	// duration of the last query, which is long on a busy machine. Comments are stored
	// as text in the file.
	owner := ", mptcp token " + token + " id "
	kit.WaitFor(t, "packets that are known to be the connection's", kit.TransferLimit, func() bool {
		text, err := os.ReadFile(dir + "/run.pcapng")
		return err == nil && strings.Contains(string(text), owner)
	})
	kit.WriteFile(t, end, "")
	if r := target.Wait(kit.Limit); r.Status != 0 {
		t.Fatal(r)
	}
	fields := []string{
		"frame.interface_name", "frame.packet_flags_direction", "frame.comment", "frame.cap_len", "frame.protocols", "tcp.options.mptcp.subtype",
		"tcp.flags.reset", "dhcp.option.dhcp", "udp.dstport", "eth.type", "sll.ifindex",
	}
	read := map[string][][]string{}
	has := func(name, field, value string) {
		t.Helper()
		if read[name] == nil {
			read[name] = kit.PacketFields(t, false, filepath.Join(dir, name), fields...)
		}
		n := slices.Index(fields, field)
		if !slices.ContainsFunc(read[name], func(f []string) bool { return f[n] != "" && strings.Contains(","+f[n]+",", value) }) {
			t.Errorf("%s: no packet of %d with %q in %s", name, len(read[name]), value, field)
		}
	}
	for _, name := range []string{"run.pcapng", "all.pcapng"} {
		for _, i := range []string{"lo", "eth0", "eth1"} {
			has(name, "frame.interface_name", ","+i+",")
		}
		for _, d := range []string{"0x00000001", "0x00000002"} {
			has(name, "frame.packet_flags_direction", d)
		}
		has(name, "tcp.options.mptcp.subtype", ",2,")
	}
	has("run.pcapng", "frame.comment", owner)
	has("run.pcapng", "dhcp.option.dhcp", ",1,")
	has("run.pcapng", "tcp.options.mptcp.subtype", ",0,")
	has("run.pcapng", "tcp.options.mptcp.subtype", ",1,")
	has("run0.pcapng", "udp.dstport", ",67,")
	has("all.pcap", "sll.ifindex", "")
	has("ether.pcap", "eth.type", ",0x0800,")
	has("lo.pcapng", "tcp.flags.reset", ",1,")
	for _, name := range []string{"raw.pcapng", "raw.pcap"} {
		has(name, "frame.protocols", ",raw:ip:")
	}
	has("ring", "frame.cap_len", ",60,")
}

// TestCaptureTwo checks a file with the packets of two instances. The names of its
// interfaces identify the instance.
func TestCaptureTwo(t *testing.T) {
	kit.NewSite(t)
	kit.Need(t, "tshark")
	names := []string{kit.NewName(), kit.NewName()}
	for _, n := range names {
		kit.Start(t, kit.Lklrun("--name", n, "--", "/usr/bin/python3", "-c", asksOften, "192.168.127.254"))
	}
	kit.WaitFor(t, "both", kit.Limit, func() bool { return pidOf(t, names[0], "target_pid") != 0 && pidOf(t, names[1], "target_pid") != 0 })
	trace := filepath.Join(kit.Dir(t), "two.pcapng")
	for _, which := range [][]string{{"-n", names[0], "-n", names[1]}, {"--all-instances"}} {
		p := kit.Start(t, exec.Command(kit.Bin("lklctl"), append([]string{"capture", "-U", "-w", trace, "udp", "port", "4000"}, which...)...))
		kit.WaitFor(t, "packets of both", kit.Limit, func() bool {
			if _, errs := p.Output(); !strings.Contains(errs, "capturing on") {
				return !p.Running()
			}
			rows := kit.PacketFields(t, true, trace, "frame.interface_description", "udp.dstport")
			return !p.Running() || !slices.ContainsFunc(names, func(n string) bool {
				return !slices.ContainsFunc(rows, func(f []string) bool { return f[0] == "instance "+n+", eth0" && f[1] == "4000" })
			})
		})
		p.Signal(syscall.SIGINT)
		if r := p.Wait(kit.Limit); r.Status != 0 || !strings.Contains(r.Stderr, " packets captured, ") {
			t.Errorf("%q: %v", which, r)
		}
		kit.PacketFields(t, false, trace, "frame.number") // the file is complete
		if err := os.Remove(trace); err != nil {
			t.Fatal(err)
		}
	}
}
