// SPDX-License-Identifier: Apache-2.0

package capture

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/asks_until.py
var asksUntil string

// TestCaptureRun checks that --capture writes all packets to a file, from those before
// the configuration to the last ones, and identifies their owners.
func TestCaptureRun(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			p := kit.NewPathSite(t)
			dir := kit.Dir(t)
			kit.WriteFile(t, dir+"/hello", "hello\n")
			p.Server.Nginx(t, kit.Nginx{Root: dir, MPTCP: true})
			trace, end := dir+"/trace.pcapng", dir+"/end"
			target := kit.Start(t, p.Host.Command(kit.Bin("lklrun"), "--name", p.Instance, "--engine", engine, "--capture", trace,
				"--if", p.Ifs[0], "--if", p.Ifs[1], "--", "/usr/bin/python3", "-c", asksUntil, p.Addr, end))
			token := ""
			// MPTCP decides which path carries these few bytes.
			kit.WaitFor(t, "packets that are known to be the program's", 4*kit.Limit, func() bool {
				if token == "" {
					token = tokenIn(p)
				}
				owner := fmt.Sprintf("python3(%d) fd ", targetOf(p))
				return token != "" && slices.ContainsFunc(kit.PacketFields(t, true, trace, "frame.comment"), func(f []string) bool {
					return strings.HasPrefix(f[0], owner) && strings.Contains(f[0], ", mptcp token "+token+" id ")
				})
			})
			kit.WriteFile(t, end, "")
			if r := target.Wait(kit.Limit); r.Status != 0 || r.Stderr != "" {
				t.Fatal(r)
			}
			captured(t, trace)
		})
	}
}

// captured checks the file of a finished run.
func captured(t *testing.T, trace string) {
	t.Helper()
	rows := kit.PacketFields(t, false, trace, "frame.interface_name", "frame.packet_flags_direction", "icmpv6.type", "arp.opcode", "tcp.flags", "tcp.options.mptcp.subtype", "tcp.srcport")
	find := func(what string, fits func(f []string) bool) int {
		n := slices.IndexFunc(rows, fits)
		if n < 0 {
			t.Errorf("no %s among %d packets:\n%v", what, len(rows), rows)
		}
		return n
	}
	const in, out = "0x00000001", "0x00000002"
	flags := func(f string) int { n := 0; fmt.Sscanf(f, "0x%x", &n); return n } //nolint:errcheck // none is 0
	early := find("neighbour solicitation or listener report of an address that is being configured", func(f []string) bool { return f[1] == out && (f[2] == "135" || f[2] == "143") })
	arp := find("ARP request", func(f []string) bool { return f[0] == "eth0" && f[1] == out && f[3] == "1" })
	syn := find("SYN with MP_CAPABLE", func(f []string) bool { return f[0] == "eth0" && f[1] == out && flags(f[4])&0x12 == 2 && f[5] == "0" })
	join := find("SYN with MP_JOIN", func(f []string) bool { return f[0] == "eth1" && f[1] == out && flags(f[4])&0x12 == 2 && f[5] == "1" })
	if early > syn || arp > syn || syn > join {
		t.Errorf("packets %d, %d, %d and %d are not in the order of their times", early, arp, syn, join)
	}
	find("SYN-ACK of the server's", func(f []string) bool { return f[1] == in && flags(f[4])&0x12 == 0x12 })
	// The run does not wait for the peer's FIN.
	find("FIN of ours", func(f []string) bool { return f[1] == out && flags(f[4])&1 != 0 })
}

// tokenIn returns the token of the stack's only MPTCP connection, as lklctl prints it.
func tokenIn(p *kit.PathSite) string {
	r := kit.Run(p, kit.Limit, p.Host.Command(kit.Bin("lklctl"), "-n", p.Instance, "mptcp", "-o", "json"))
	var all []struct {
		MPTCP struct {
			Token uint32 `json:"token"`
		} `json:"mptcp_info"`
	}
	if r.Status != 0 || json.Unmarshal([]byte(r.Stdout), &all) != nil || len(all) != 1 {
		return ""
	}
	return fmt.Sprintf("%08x", all[0].MPTCP.Token)
}

// targetOf returns the process id of the run's target.
func targetOf(p *kit.PathSite) int {
	var all []struct {
		Name   string `json:"name"`
		Target int    `json:"target_pid"`
	}
	r := kit.Run(p, kit.Limit, p.Host.Command(kit.Bin("lklctl"), "list", "-o", "json"))
	if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil {
		p.Fatal(err, r)
	}
	for _, i := range all {
		if i.Name == p.Instance {
			return i.Target
		}
	}
	return -1
}

// TestCaptureRunEnds checks that the file can be read, whichever process is killed. A
// full disk, or a disk that blocks writes, must not delay a process. The run must return
// the command's status.
func TestCaptureRunEnds(t *testing.T) {
	s := kit.NewSite(t)
	kit.Need(t, "mkfifo")
	s.Web(kit.Nginx{MPTCP: true})
	kit.Random(t, filepath.Join(s.Dir, "file"), 4<<20)

	for _, whom := range []string{"target", "lklhost", "lklrun"} {
		t.Run(whom+" killed", func(t *testing.T) {
			trace := filepath.Join(kit.Dir(t), "trace.pcapng")
			name := kit.NewName()
			target := kit.Start(t, kit.Lklrun("--name", name, "--if", s.TapIf(), "--capture", trace+",snap=96", "--", "/usr/bin/python3", "-c", asksUntil, kit.ServerAddr, trace+".end"))
			kit.WaitFor(t, "a few packets", kit.Limit, func() bool { return len(kit.PacketFields(t, true, trace, "frame.number")) > 20 })
			pid := map[string]func() int{"target": func() int { return pidOf(t, name, "target_pid") }, "lklhost": func() int { return pidOf(t, name, "host_pid") }, "lklrun": target.Pid}[whom]()
			before := len(kit.PacketFields(t, true, trace, "frame.number"))
			if err := unix.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			target.Wait(kit.Limit)
			if after := len(kit.PacketFields(t, whom == "lklrun", trace, "frame.number")); after < before {
				t.Errorf("the file has %d packets, it had %d before", after, before)
			}
			kit.WaitFor(t, "the end of "+name, kit.Limit, func() bool { return pidOf(t, name, "pid") == 0 })
		})
	}
	t.Run("full disk", func(t *testing.T) {
		r := kit.Run(t, kit.Limit, kit.Lklrun("--name", kit.NewName(), "--if", s.TapIf(), "--capture", "/dev/full", "--", "sh", "-c", "curl -s "+kit.ServerURL+"/hello; exit 7"))
		if r.Status != 7 || r.Stdout != "hello\n" || strings.Count(r.Stderr, "\n") != 1 || !strings.Contains(r.Stderr, "--capture /dev/full stopped, and the command continues: no space left on device") {
			t.Error(r)
		}
	})
	t.Run("disk that takes nothing", func(t *testing.T) {
		pipe := filepath.Join(kit.Dir(t), "pipe")
		if err := unix.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		r := kit.Run(t, kit.Limit, kit.Lklrun("--name", kit.NewName(), "--if", s.TapIf(), "--capture", pipe, "--", "sh", "-c", "curl -s "+kit.ServerURL+"/file | wc -c; exit 7"))
		if r.Status != 7 || r.Stdout != fmt.Sprintln(4<<20) || !strings.Contains(r.Stderr, "the last packets are missing from the file") {
			t.Error(r)
		}
	})
	t.Run("what cannot be", func(t *testing.T) {
		dir := kit.Dir(t)
		for spec, want := range map[string]string{
			dir + "/no/file":              "--capture " + dir + "/no/file: no such file or directory",
			dir + "/a,if=eth7":            "eth7: the run has no such interface; there are: eth0, lo",
			dir + "/a,filter=tcp prot 80": `filter "tcp prot 80": `,
			dir + "/a,snap=1":             "expected bytes, from 60",
			"-":                           "standard output belongs to the command",
		} {
			r := kit.Run(t, kit.Limit, kit.Lklrun("--name", kit.NewName(), "--if", s.TapIf(), "--capture", spec, "--", "touch", dir+"/ran"))
			if r.Status != 2 || strings.Count(r.Stderr, "\n") != 1 || !strings.Contains(r.Stderr, want) {
				t.Errorf("%s: %v\nwant %q", spec, r, want)
			}
		}
		if _, err := os.Stat(dir + "/ran"); err == nil {
			t.Error("the command has run")
		}
	})
}

// pidOf returns one of an instance's process ids, or 0 if there is none.
func pidOf(t *testing.T, name, key string) int {
	t.Helper()
	var all []map[string]any
	if err := json.Unmarshal([]byte(kit.Lklctl(t, "list", "-o", "json")), &all); err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if n, ok := i[key].(float64); ok && i["name"] == name && i["running"] == true {
			return int(n)
		}
	}
	return 0
}
