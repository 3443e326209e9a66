// SPDX-License-Identifier: Apache-2.0

package counters

import "github.com/lklrun/lklrun/internal/stack/stackconn"

// EngineSample returns a set of lklhost's counters, for TestPrometheus.
func EngineSample() Set { return engine(engineStats) }

var engineStats = []stackconn.Stat{
	{Name: "sockets.open", Value: 2},
	{Name: "proc.12.my.pro g.received", Value: 5},
	{Name: "proc.12.my.pro g.peer tcp 10.0.0.1:80", Value: 6},
	{Name: "ended.13.x.fallback-peer", Value: 7},
	{Name: "hosted.127.0.0.1:5432", Value: 8},
	{Name: "hosted.elsewhere", Value: 9},
}
