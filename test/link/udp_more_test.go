// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// layUDP sets up a tunnel to a gateway in far.
func layUDP(w *wire) {
	w.here.Addr(w, "v0", hereAddr+"/24", hereAddr6+"/64")
	keys := filepath.Join(kit.Dir(w), "keys")
	kit.Host.Run(w, kit.Bin("lklrun"), "gateway", "--new-key", keys, "--paths", "1", "--net", "10.87.0.0/24")
	text, err := os.ReadFile(filepath.Join(keys, "gateway.conf"))
	kit.Must(w.T, err)
	six := regexp.MustCompile(`(fd[0-9a-f:]+)::1/64`).FindSubmatch(text)
	if six == nil {
		w.Fatalf("no IPv6 network in\n%s", text)
	}
	// Instances are not separate for each namespace, but devices and their names are.
	device := fmt.Sprintf("gw%d", os.Getpid()%1000) + w.here.Name[len(w.here.Name)-2:]
	gw := kit.Start(w, w.far.Command(kit.Bin("lklrun"), "gateway", "--listen", udpPort, "--key", filepath.Join(keys, "gateway.conf"), "--tun", device))
	kit.WaitFor(w, "the gateway", kit.Limit, func() bool {
		_, errs := gw.Output()
		return strings.Contains(errs, "gateway on UDP port") || !gw.Running()
	})
	w.Cleanup(func() {
		gw.Signal(syscall.SIGTERM)
		gw.Wait(kit.Limit)
	})
	w.flag = "udp:" + farAddr + ":" + udpPort + ",key=" + filepath.Join(keys, "client-1.conf")
	w.fars, w.near = []string{"10.87.0.1", string(six[1]) + "::1"}, "10.87.0.1"
	w.guests = []string{"10.87.0.2", string(six[1]) + "::2"}
	for _, a := range w.fars {
		w.far.EchoUDP(w, hostPort(a, fmt.Sprint(echoPort)))
	}
	w.mtu, w.fixed = 1420, true
}

func hostPort(a, port string) string {
	if strings.Contains(a, ":") {
		a = "[" + a + "]"
	}
	return a + ":" + port
}

// TestUDPSmallMTU checks that the tunnel's packets fit into the network's, however small
// those are, so that no router has to fragment them.
func TestUDPSmallMTU(t *testing.T) {
	s := newUDPSite(t)
	s.gateway()
	fragments := func() (all string) {
		for _, n := range []*kit.Netns{s.Host, s.routers[0], s.Server} {
			all += n.Run(t, "/usr/bin/python3", "-c", `
k, v = [line.split() for line in open("/proc/self/net/snmp") if line.startswith("Ip:")]
print(*[v[k.index(name)] for name in ("FragCreates", "FragFails", "ReasmReqds")])`)
		}
		return all
	}
	was := fragments()
	for _, c := range []struct{ outer, inner int }{{1500, 1420}, {1340, 1280}, {1000, 940}} {
		s.Host.Run(t, "ip", "link", "set", "a0", "mtu", fmt.Sprint(c.outer))
		target := s.start("supervise", s.Ifs[:1], "sleep", "600")
		kit.WaitFor(t, "an answer", kit.Limit, func() bool { return s.pings(udpGateway) || !target.Running() })
		if !s.pings("-M", "do", "-s", fmt.Sprint(c.inner-28), udpGateway) {
			t.Errorf("mtu %d: no answer to a packet of %d bytes", c.outer, c.inner)
		}
		if s.pings("-M", "do", "-s", fmt.Sprint(c.inner-27), udpGateway) {
			t.Errorf("mtu %d: an answer to a packet of %d bytes", c.outer, c.inner+1)
		}
		_, errs := target.Output()
		if said := strings.Contains(errs, "eth0 has no IPv6: the MTU 940 is too small for it"); said != (c.inner < 1280) {
			t.Errorf("mtu %d: %s", c.outer, errs)
		}
		target.Signal(syscall.SIGTERM)
		target.Wait(kit.Limit)
	}
	if now := fragments(); now != was {
		t.Errorf("fragments of the client, the router and the gateway:\n%swere\n%s", now, was)
	}
}

// TestUDPOverIPv6 runs a tunnel between IPv6 addresses, to a stack that is the gateway. No
// process has any right.
func TestUDPOverIPv6(t *testing.T) {
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			s := newUDPSite(t)
			s.Host.Addr(t, "a0", "fd81::2/64")
			s.routers[0].Addr(t, "in", "fd81::1/64") // the gateway is in the router
			kit.Host.Run(t, "chown", fmt.Sprint(kit.OrdinaryUID), s.dir, s.dir+"/gateway.conf")
			client, host := s.Instance, s.Host
			s.Host, s.Instance = s.routers[0], kit.NewName()
			gw := s.start(engine, []string{"udp:" + udpPort + ",key=" + s.dir + "/gateway.conf"}, python(bytesServer, udpGateway)...)
			ready(t, gw)
			s.Host, s.Instance = host, client
			target := s.start(engine, []string{"udp:[fd81::1]:" + udpPort + ",via=a0,key=" + s.key("phone", 0)}, python(bytesClient, udpGateway, "20000000")...)
			if r := target.Wait(kit.Limit); r.Status != 0 || r.Stdout != "right\n" {
				t.Errorf("%v", r)
			}
		})
	}
}

// TestUDPLife adds and removes a tunnel while a detached run is going on, and checks what the
// other commands say about it.
func TestUDPLife(t *testing.T) {
	s := newUDPSite(t)
	s.gateway()
	before := kit.Take(t, s.Host)
	plan := kit.OK(t, kit.Limit, s.as("lklrun", "--dry-run", "--if", s.Ifs[0], "--", "true"))
	if !strings.Contains(plan, "tunnel in UDP to "+udpPublic+":"+udpPort+" through a0, 10.86.0.2/24") {
		t.Errorf("--dry-run: %s", plan)
	}
	if secret := regexp.MustCompile(`PrivateKey = (\S+)`).FindStringSubmatch(s.Host.Run(t, "cat", s.key("phone", 0)))[1]; strings.Contains(
		plan+kit.OK(t, kit.Limit, s.as("lklrun", "--dry-run", "-o", "json", "--if", s.Ifs[0], "--", "true")), secret) {
		t.Error("the plan contains the key")
	}
	if out := kit.Run(t, kit.Limit, s.as("lklrun", "doctor")).Stdout; !regexp.MustCompile(`(?m)^udp +ok `).MatchString(out) {
		t.Errorf("doctor: %s", out)
	}
	server := python("import socket, time; s = socket.create_server(('', 8080)); time.sleep(600)")
	kit.OK(t, kit.Limit, s.as("lklrun", append([]string{"--detach", "--name", s.Instance, "--if", s.Ifs[0], "--"}, server...)...))
	kit.WaitFor(t, "the server", kit.Limit, func() bool { return strings.Contains(s.lklctl("netstat", "-l"), ":8080") })
	if out := s.lklctl("link"); !strings.Contains(out, "10.86.0.2") {
		t.Errorf("link: %s", out)
	}
	if out := s.lklctl("link", "add", s.Ifs[1]); !strings.Contains(out, "eth1") {
		t.Errorf("link add: %s", out)
	}
	if !s.pings("-I", "eth1", udpGateway) {
		t.Error("no answer on eth1")
	}
	s.lklctl("link", "del", "eth1")
	s.lklctl("link", "add", s.Ifs[1])
	if !s.pings("-I", "eth1", udpGateway) {
		t.Error("no answer on the new eth1")
	}
	if out := kit.OK(t, kit.Limit, s.as("lklctl", "list")); strings.Contains(out, "lklgw0") {
		t.Errorf("list: %s", out)
	}
	s.lklctl("stop")
	kit.Host.Run(t, "rm", "-rf", s.run+"/lklrun")
	before.Settles(kit.Limit)
}

// TestUDPGatewayKilled kills the gateway. Cleanup must remove its rules, and a new gateway
// must serve the same tunnel.
func TestUDPGatewayKilled(t *testing.T) {
	s := newUDPSite(t)
	before := kit.Take(t, s.Server)
	host := func() string { return s.Server.Run(t, "sh", "-c", "nft list ruleset; sysctl net.ipv4.ip_forward") }
	was := host()
	gw := s.gateway()
	client := s.start("supervise", s.Ifs[:1], "sleep", "600")
	kit.WaitFor(t, "an answer", kit.Limit, func() bool { return s.pings(udpGateway) })
	if now := host(); !strings.Contains(now, "masquerade") {
		t.Errorf("the rules: %s", now)
	}
	gw.Signal(syscall.SIGKILL)
	gw.Wait(kit.Limit)
	if out := kit.OK(t, kit.Limit, s.Server.Command(kit.Bin("lklrun"), "cleanup")); !strings.Contains(out, "lklgw0: cleaned up") {
		t.Errorf("cleanup: %s", out)
	}
	if now := host(); now != was {
		t.Errorf("after cleanup: %s", now)
	}
	gw = s.gateway()
	kit.WaitFor(t, "an answer of the new gateway", kit.Limit, func() bool { return s.pings(udpGateway) })
	r := kit.Run(t, kit.Limit, s.Server.Command(kit.Bin("lklrun"), "gateway", "--listen", udpPort, "--tun", "other0", "--key", filepath.Join(s.dir, "gateway.conf")))
	kit.OneLine(t, r, 2, "the host already has a route to 10.86.0.0/24")
	for _, p := range []*kit.Proc{client, gw} {
		p.Signal(syscall.SIGTERM)
		p.Wait(kit.Limit)
	}
	before.Settles(kit.Limit)
}
