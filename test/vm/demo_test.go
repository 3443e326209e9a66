// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/vm"
)

// demoWires sets up the demo's wires (test/demo.sh) and its server on the machine. The
// links are slower than in the demo, because the machine is; $1 is their rate.
const demoWires = `
set -eu
ip netns add server
ip -n server link set lo up
for i in 0 1; do
	n=$((i + 1))
	ip link add v$i type veth peer name s$i netns server
	ip link add br$i type bridge
	ip tuntap add tap$i mode tap
	for d in v$i tap$i; do ip link set $d master br$i up; done
	ip link set br$i up
	ip -n server addr add 10.71.$n.1/24 dev s$i
	ip -n server link set s$i up
	tc -n server qdisc add dev s$i root tbf rate $1 burst 64kb latency 50ms
	tc qdisc add dev v$i root tbf rate $1 burst 64kb latency 50ms
done
ip netns exec server sysctl -qw net.mptcp.enabled=1
ip -n server mptcp limits set subflow 1 add_addr_accepted 0
ip -n server mptcp endpoint add 10.71.2.1 dev s1 signal
mkdir -p /srv/demo
head -c 8000000 /dev/urandom >/srv/demo/file
cat >/srv/demo/conf <<END
user root; pid /srv/demo/pid; error_log /srv/demo/error.log;
events { }
http { access_log off; sendfile on; server { listen 80; root /srv/demo; } }
END
ip netns exec server mptcpize run nginx -e /srv/demo/error.log -c /srv/demo/conf
sha256sum </srv/demo/file
`

// demoEnd removes the wires and the server.
const demoEnd = `
kill $(cat /srv/demo/pid)
n=0
while [ -n "$(ip netns pids server)" ] && [ $n -lt 100 ]; do n=$((n + 1)); sleep 0.1; done
ip netns del server
for i in 0 1; do ip link del br$i; ip link del tap$i; ip link del v$i 2>/dev/null || :; done
rm -r /srv/demo /tmp/got
`

// demoSaw prints the counts of the server's kernel: its MPTCP connections, its joined
// subflows, and the bytes sent over each path.
const demoSaw = `
ip netns exec server nstat -asz MPTcpExtMPCapableACKRX MPTcpExtMPJoinAckRx | awk '/^MPTcp/ { print $2 }'
ip netns exec server cat /sys/class/net/s0/statistics/tx_bytes /sys/class/net/s1/statistics/tx_bytes
sha256sum </tmp/got
`

// demoLeft prints what a run could leave behind on the machine.
const demoLeft = `
ps -e -o comm= | grep lkl
ls -A /run/lklrun 2>/dev/null
ip -o link | sed 's/^[0-9]*: //; s/[@:].*//'
nft list ruleset
awk '{ print $2 }' /proc/mounts
:`

// testDemo runs the demo from the desk on the machine. An unmodified curl fetches a
// file over two paths at once. Its server, whose kernel speaks MPTCP, is on the phone's
// side of the cable.
func testDemo(t *testing.T, m *vm.Machine, engine string) {
	const size = 8000000
	defer m.Sh(t, limit, demoEnd)
	want := strings.TrimSpace(m.Do(t, limit, "set -- 20mbit\n"+demoWires))
	before := m.Do(t, limit, demoLeft)

	began := time.Now()
	r := testutil.Run(t, 3*time.Minute, device(m, "--engine", engine, "--stack", "mptcp",
		"--if", "tap:tap0,ip=10.71.1.2/24", "--if", "tap:tap1,ip=10.71.2.2/24", "--",
		"curl", "-m", "100", "-s", "-o", "/tmp/got", "-w", "%{size_download} %{speed_download}", "http://10.71.1.1/file"))
	var got, speed float64
	if n, err := fmt.Sscan(r.Stdout, &got, &speed); r.Status != 0 || n != 2 || got != size {
		t.Fatalf("lklrun --device, engine %s (%v): %v", engine, err, r)
	}
	t.Logf("%s: %.1f Mbit/s over two links of 20 Mbit/s, %.1f s in all", engine, speed*8/1e6, time.Since(began).Seconds())

	saw := strings.Fields(m.Do(t, limit, demoSaw))
	if len(saw) != 6 || saw[0] != "1" || saw[1] != "1" {
		t.Fatalf("the server counted (connections, joins, bytes, bytes, checksum): %q", saw)
	}
	for i, bytes := range saw[2:4] {
		var n int
		if _, err := fmt.Sscan(bytes, &n); err != nil || n < size/5 {
			t.Errorf("path %d carried %s bytes of %d", i, bytes, size)
		}
	}
	if saw[4] != strings.Fields(want)[0] {
		t.Error("the file that was fetched is not the one that was served")
	}
	// The last changes may still be undone when the status arrives.
	if !testutil.Within(10*time.Second, func() bool { return m.Do(t, limit, demoLeft) == before }) {
		t.Errorf("left on the machine; before:\n%safter:\n%s", before, m.Do(t, limit, demoLeft))
	}
}

// device is the command line `lklrun --device` for the machine.
func device(m *vm.Machine, args ...string) *exec.Cmd {
	cmd := exec.Command(testutil.Bin("lklrun"), append([]string{"--device", m.Target()}, args...)...)
	cmd.Env = m.Client.Env()
	return cmd
}
