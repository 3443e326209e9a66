// SPDX-License-Identifier: Apache-2.0

package oci

import (
	_ "embed"
	"testing"

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
