// SPDX-License-Identifier: Apache-2.0

package sysctl

import (
	"context"
	"errors"
	"path"
	"strings"
	"syscall"

	"github.com/lklrun/lklrun/internal/base/suggest"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// choices maps a setting to the setting that lists its possible values.
var choices = map[string]string{
	"net.ipv4.tcp_congestion_control":         "net.ipv4.tcp_available_congestion_control",
	"net.ipv4.tcp_allowed_congestion_control": "net.ipv4.tcp_available_congestion_control",
	"net.mptcp.scheduler":                     "net.mptcp.available_schedulers",
	"net.mptcp.path_manager":                  "net.mptcp.available_path_managers",
}

// ranges describes the values of settings with constant limits, for globs of keys. The
// limits are those in net/ipv4/sysctl_net_ipv4.c and net/mptcp/ctrl.c of Linux 6.12.
var ranges = []struct{ glob, takes string }{
	{"net.ipv4.ip_default_ttl", "1 to 255"},
	{"net.ipv4.tcp_adv_win_scale", "-31 to 31"},
	{"net.ipv4.tcp_app_win", "0 to 31"},
	{"net.ipv4.tcp_early_retrans", "0 to 4"},
	{"net.ipv4.tcp_ecn", "0 to 2"},
	{"net.ipv4.tcp_min_rtt_wlen", "0 to 86400"},
	{"net.ipv4.tcp_pacing_*_ratio", "0 to 1000"},
	{"net.ipv4.tcp_retries1", "0 to 255"},
	{"net.ipv4.tcp_syn_linear_timeouts", "0 to 127"},
	{"net.ipv4.tcp_syn_retries", "1 to 127"},
	{"net.ipv4.tcp_tso_rtt_log", "0 to 31"},
	{"net.ipv4.tcp_tw_reuse", "0 to 2"},
	{"net.ipv4.ip_unprivileged_port_start", "a port from 0 to 65535, not above the first port of ip_local_port_range"},
	{"net.ipv4.ip_local_port_range", "two ports, the lower one first, not below ip_unprivileged_port_start"},
	{"net.ipv4.tcp_[rw]mem", "three numbers of bytes: minimum, default, maximum"},
	{"net.mptcp.enabled", "0 or 1"},
	{"net.mptcp.checksum_enabled", "0 or 1"},
	{"net.mptcp.allow_join_initial_addr_port", "0 or 1"},
	{"net.mptcp.pm_type", "0 or 1"},
	{"net.mptcp.stale_loss_cnt", "a whole number, 0 or more"},
}

// Takes describes the values that a setting accepts, if they are known.
func Takes(ctx context.Context, c *stackconn.Conn, key string) string {
	if list, ok := choices[key]; ok {
		if v, err := stacknet.GetSysctl(ctx, c, list); err == nil {
			return "one of " + strings.Join(strings.Fields(v), ", ")
		}
	}
	for _, r := range ranges {
		if ok, err := path.Match(r.glob, key); ok && err == nil {
			return r.takes
		}
	}
	return ""
}

// Explain adds an explanation to the stack's error for a setting: the key that the user
// probably meant, or the values that the setting accepts. It returns other errors
// unchanged.
func Explain(ctx context.Context, c *stackconn.Conn, err error) error {
	var e *stacknet.SysctlError
	if errors.As(err, &e) {
		if e.Missing() {
			e.Instead = nearest(ctx, c, e.Key)
		} else if e.Write {
			e.Instead = means(Takes(ctx, c, e.Key), e.Err)
		}
	}
	return err
}

// means explains the error number of a refused value.
func means(takes string, err error) string {
	switch {
	case takes != "":
		return "it takes " + takes
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ERANGE):
		return "wrong format or out of range"
	case errors.Is(err, syscall.ENOENT):
		return "the stack has nothing with that name"
	case errors.Is(err, syscall.EBUSY):
		return "it cannot be changed while it is in use"
	}
	return ""
}

// nearest returns the existing setting in the same directory whose name is most similar
// to key.
func nearest(ctx context.Context, c *stackconn.Conn, key string) string {
	file, err := stacknet.SysctlPath(key)
	if err != nil {
		return ""
	}
	dir, name := path.Split(file)
	entries, err := c.ReadDir(ctx, dir)
	if err != nil {
		return ""
	}
	var names []string
	for _, d := range entries {
		names = append(names, d.Name)
	}
	if w := suggest.Word(name, names); w != "" {
		return "did you mean " + stacknet.SysctlKey(dir+w) + "?"
	}
	return ""
}
