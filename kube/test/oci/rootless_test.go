// SPDX-License-Identifier: Apache-2.0

package oci

import (
	_ "embed"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

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
