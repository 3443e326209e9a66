// SPDX-License-Identifier: Apache-2.0

package oci

import (
	_ "embed"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lklrun/lklrun/test/kit"
)

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
