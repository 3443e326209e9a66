// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"os"

	"github.com/lklrun/lklrun/internal/stack/resolver"
)

// meetingFile is a socket of lklhost in the run directory. It exists if lklhost could not
// create a network namespace (csrc/engine/supervise/carrier.c). The target then has no
// namespaces of its own.
const meetingFile = "m00000000"

// resolvers returns the service that answers name queries on the stack's loopback, for a
// target without the run's resolv.conf.
func resolvers(r *run) service {
	if r.plan.Resolv == "" {
		return nil
	}
	addrs := r.plan.Names.Serve
	if _, err := os.Lstat(r.dir.File(meetingFile)); err == nil {
		// Without namespaces, nothing can be mounted over the host's resolv.conf.
		addrs = r.plan.Names.ServeInstead
	}
	if len(addrs) == 0 {
		return nil
	}
	return &resolver.Resolver{Options: resolver.Options{
		Conn: r.conn, Addrs: addrs, Servers: r.files.nameServers, Log: r.log,
	}}
}
