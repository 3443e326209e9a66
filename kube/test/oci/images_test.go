// SPDX-License-Identifier: Apache-2.0

package oci

import (
	_ "embed"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lklrun/lklrun/test/kit"
)

// images makes the images localhost/nginx and localhost/busybox from the machine's
// programs, with their libraries and nothing else.
//
//go:embed testdata/images.sh
var images string

//go:embed testdata/serve.sh
var serve string

// TestOCIImages checks that unchanged images serve and fetch on the stacks bbr and mptcp,
// and that the commands of podman work.
func TestOCIImages(t *testing.T) {
	kit.Need(t, "nginx", "busybox", "curl", "mptcpize", "python3", "ss", "tc", "iptables", kit.Bin("lklrun-oci"))
	podman := kit.Podman{Host: kit.NewNetns(t, "host"), Bin: kit.PublicBin(t), Conf: kit.PodmanConf, Runtime: "lklrun-oci"}
	cmd := podman.Command(t, images+serve)
	before := kit.Take(t)
	r := kit.Run(t, limit, cmd)
	checkScript(t, r,
		"published: hello from nginx\n",
		"interfaces: eth0=raw:eth0,eth1=raw:eth1\n",
		"healthy: 0 healthy\n",
		"exec: hello from nginx\n",
		"fetched: 52428800\n",
		"congestion control:  bbr \n",
		"subflows: 10.89.0.0/24 10.89.1.0/24\n", // at the peer
		"sysctl: net.ipv4.tcp_notsent_lowat = 4242\n",
		"files: bbr 4242\n",
		"devices: eth0 lo, 2\n",
		"sockets: 1\n",
		"written: net.ipv4.tcp_congestion_control = bbr bbr\n",
		"mptcp: 2\n", // subflows, by lklctl
		"unhealthy: 1\n",
		"restarted: hello from nginx\n",
		`"GET /big HTTP/1.1" 200 52428800`, // podman logs
		"left: nothing\n",
	)
	before.Settles(limit)
}

//go:embed testdata/rootless.sh
var rootless string

// TestOCIRootless checks a container of podman without root: published ports, outgoing
// connections, programs of `podman exec`, capabilities and the end.
func TestOCIRootless(t *testing.T) {
	kit.Need(t, "slirp4netns", "busybox", "curl", "pgrep", kit.Bin("lklrun-oci"))
	podman := kit.Podman{Host: kit.NewNetns(t, "host"), UID: kit.OrdinaryUID, Bin: kit.PublicBin(t), Conf: kit.PodmanConf + kit.PodmanUsr, Runtime: "lklrun-oci"}
	cmd := podman.Command(t, rootless)
	before := kit.Take(t)
	r := kit.Run(t, limit, cmd)
	checkScript(t, r,
		"published, slirp4netns:port_handler=slirp4netns: root:x:0:0::/root:/bin/sh\n",
		"published, slirp4netns:allow_host_loopback=true: root:x:0:0::/root:/bin/sh\n",
		"fetched: from outside\n",
		"address: RTNETLINK answers: Operation not permitted\n",
		"address with CAP_NET_ADMIN: permitted\n",
		"congestion control: bbr\n",
		"left: nothing\n",
	)
	before.Settles(limit)
}

//go:embed testdata/killed.sh
var killed string

// TestOCIKilled kills each process of a container with a stack, and those that create it.
// The stack ends, the container has no other network, and `podman rm` removes the rest.
// Only if conmon is killed, the container and its stack continue.
func TestOCIKilled(t *testing.T) {
	kit.Need(t, "busybox", "curl", "iptables", "pgrep", kit.Bin("lklrun-oci"))
	podman := kit.Podman{Host: kit.NewNetns(t, "host"), Bin: kit.PublicBin(t), Conf: kit.PodmanConf + kit.PodmanUsr, Runtime: "lklrun-oci"}
	cmd := podman.Command(t, "set +e\n"+killed)
	before := kit.Take(t)
	r := kit.Run(t, limit, cmd)
	want := `lklhost --run: stack: 
lklhost --run: left: 
lklrun --detached: stack: 
lklrun --detached: left: 
lklrun-oci hold: stack: 
lklrun-oci hold: left: 
conmon: left: 
busybox httpd: stack: 
busybox httpd: left: 
crun: podman reports a failure
crun creating: left: 
lklrun-oci creating: stack: 
lklrun-oci: podman reports a failure
lklrun-oci creating: left: 
conmon: podman reports a failure
conmon creating: left: 
`
	if diff := cmp.Diff(want, r.Stdout); diff != "" {
		t.Errorf("the results differ (-want +got):\n%s\n%v", diff, r)
	}
	for _, want := range []string{") was killed by SIGKILL", "lklrun was killed", "its command ended (exit 137)"} {
		if !strings.Contains(r.Stderr, want) || !strings.Contains(r.Stderr, "the stack of the container has ended") {
			t.Errorf("podman exec does not report that the stack has ended: %q: %v", want, r)
		}
	}
	before.Settles(limit)
}
