// SPDX-License-Identifier: Apache-2.0

package remote

import "context"

// Expand replaces KindAll by the devices of adb. It returns an error if there is no
// device, or if a device cannot be used.
func Expand(ctx context.Context, targets []Target) ([]Target, error) {
	var all []Target
	for _, t := range targets {
		if t.Kind != KindAll {
			all = append(all, t)
			continue
		}
		devices, err := listADB(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, devices...)
	}
	return all, nil
}
