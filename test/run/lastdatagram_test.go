// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"os"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestLastDatagram checks that a datagram is not lost if its sender ends at once,
// before the stack has the datagram and before ARP or neighbour discovery has an
// answer.
func TestLastDatagram(t *testing.T) {
	s := testutil.NewSite(t)
	testutil.Need(t, "socat", "nc")
	dir := testutil.Dir(t)
	for _, a := range []string{testutil.ServerAddr, testutil.ServerAddr6} {
		heard := testutil.Start(t, s.Server.Command("socat", "-u", "UDP6-RECV:7000", "OPEN:"+dir+"/heard,creat,append"))
		testutil.WaitFor(t, "the listener", testutil.Limit, func() bool { return s.Server.Listening(t, "u", 7000) })
		want := ""
		for i := range 10 {
			testutil.OK(t, testutil.Limit, s.OnTap("sh", "-c", fmt.Sprintf("echo %d | nc -u -N -q 0 %s 7000", i, a)))
			want += fmt.Sprintln(i)
		}
		testutil.WaitFor(t, "ten datagrams to "+a, testutil.Limit, func() bool {
			heard, err := os.ReadFile(dir + "/heard")
			return err == nil && len(heard) == len(want)
		})
		heard.Signal(15)
		heard.Wait(testutil.Limit)
		if err := os.Remove(dir + "/heard"); err != nil {
			t.Fatal(err)
		}
	}
}
