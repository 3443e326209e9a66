// SPDX-License-Identifier: Apache-2.0

package vm

import (
	_ "embed"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/vm"
)

//go:embed testdata/demo_wires.sh
var demoWires string

//go:embed testdata/demo_end.sh
var demoEnd string

//go:embed testdata/demo_saw.sh
var demoSaw string

//go:embed testdata/demo_left.sh
var demoLeft string

// testDemo runs the demo from the desk on the machine. An unmodified curl fetches a
// file over two paths at once. Its server, whose kernel speaks MPTCP, is on the phone's
// side of the cable.
func testDemo(t *testing.T, m *vm.Machine, engine string) {
	const size = 4000000 // an emulated CPU carries about 1 Mbit/s
	defer m.Sh(t, limit, demoEnd)
	want := strings.TrimSpace(m.Do(t, limit, fmt.Sprintf("set -- 20mbit %d\n", size)+demoWires))
	before := m.Do(t, limit, demoLeft)

	began := time.Now()
	r := kit.Run(t, 3*time.Minute, device(m, "--engine", engine, "--stack", "mptcp",
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
	// lklrun may still be undoing the last changes when the status arrives.
	if !kit.Within(10*time.Second, func() bool { return m.Do(t, limit, demoLeft) == before }) {
		t.Errorf("left on the machine; before:\n%safter:\n%s", before, m.Do(t, limit, demoLeft))
	}
}

// device is the command line `lklrun --device` for the machine.
func device(m *vm.Machine, args ...string) *exec.Cmd { return deviceAs(m, m.Target(), args...) }

// deviceAs is like device, for a target that names another user.
func deviceAs(m *vm.Machine, target string, args ...string) *exec.Cmd {
	cmd := exec.Command(kit.Bin("lklrun"), append([]string{"--device", target}, args...)...)
	cmd.Env = m.Client.Env()
	return cmd
}
