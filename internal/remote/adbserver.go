// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"cmp"
	"context"
	"net"
	"os"
)

// Attached returns the usable devices of a running adb server. It does not
// start a server; without one, it returns none.
func Attached(ctx context.Context) []Target {
	const adbPort = "5037" // adb's default, DEFAULT_ADB_PORT in its adb.h
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", cmp.Or(os.Getenv("ANDROID_ADB_SERVER_PORT"), adbPort)))
	if err != nil {
		return nil
	}
	c.Close()
	entries, err := adbEntries(ctx, KindAll)
	if err != nil {
		return nil
	}
	var all []Target
	for _, e := range entries {
		if e.state == "device" {
			all = append(all, Target{Kind: KindADB, Name: e.serial})
		}
	}
	return all
}
