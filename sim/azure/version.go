package azure

import (
	"slices"
	"strings"
)

// Providers by whose names versions of APIs go.
const (
	networkAPI   = "Microsoft.Network"
	computeAPI   = "Microsoft.Compute"
	resourcesAPI = "Microsoft.Resources"
	scaleNICAPI  = "scale set interfaces" // Microsoft.Network tells of them in few versions
)

// The versions that are taken, read only. Resource Manager refuses what was never released.
var (
	networkVersions = strings.Fields(`2015-06-15 2016-09-01 2016-12-01 2017-03-01 2017-06-01 2017-10-01 2018-01-01 2018-02-01 2018-04-01 2018-06-01
		2018-07-01 2018-08-01 2018-10-01 2018-11-01 2018-12-01 2019-02-01 2019-04-01 2019-06-01 2019-07-01 2019-08-01 2019-09-01 2019-11-01 2019-12-01
		2020-03-01 2020-04-01 2020-05-01 2020-06-01 2020-07-01 2020-08-01 2020-11-01 2021-02-01 2021-03-01 2021-05-01 2021-08-01 2022-01-01 2022-05-01
		2022-07-01 2022-09-01 2022-11-01 2023-02-01 2023-04-01 2023-05-01 2023-06-01 2023-09-01 2023-11-01 2024-01-01 2024-03-01 2024-05-01 2024-07-01
		2024-10-01 2025-01-01 2025-03-01 2025-05-01`)
	computeVersions = strings.Fields(`2015-06-15 2016-03-30 2017-03-30 2017-12-01 2018-04-01 2018-06-01 2018-10-01 2019-03-01 2019-07-01 2019-12-01
		2020-06-01 2020-12-01 2021-03-01 2021-04-01 2021-07-01 2021-11-01 2022-03-01 2022-08-01 2022-11-01 2023-03-01 2023-07-01 2023-09-01 2024-03-01
		2024-07-01 2024-11-01 2025-04-01 2026-04-01`)
	resourcesVersions = strings.Fields(`2016-06-01 2018-05-01 2019-05-01 2019-06-01 2019-08-01 2019-10-01 2019-11-01 2020-01-01 2020-06-01 2020-08-01
		2020-10-01 2021-01-01 2021-04-01 2022-09-01 2022-12-01 2023-07-01 2024-03-01 2024-07-01 2024-11-01 2025-03-01 2025-04-01`)
)

func versionsOf(provider string) []string {
	switch fold(provider) {
	case fold(networkAPI):
		return networkVersions
	case fold(computeAPI):
		return computeVersions
	case fold(resourcesAPI):
		return resourcesVersions
	case scaleNICAPI:
		return []string{"2017-03-30", "2018-10-01"}
	}
	return nil
}

// properProvider is a provider's name as Azure writes it.
func properProvider(name string) string {
	for _, p := range []string{networkAPI, computeAPI, resourcesAPI} {
		if strings.EqualFold(p, name) {
			return p
		}
	}
	return name
}

func (q *request) checkVersion() *apiError {
	v := q.query.Get("api-version")
	if v == "" {
		return errf("MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
	}
	known := versionsOf(q.op.api)
	if slices.Contains(known, v) {
		return nil
	}
	if q.op.api == resourcesAPI {
		return errf("InvalidApiVersionParameter", "The api-version '%s' is invalid. The supported versions are '%s'.", clip(v), strings.Join(known, ","))
	}
	return errf("NoRegisteredProviderFound", "No registered resource provider found for location '' and API version '%s' for type '%s'. The supported api-versions are '%s'.", clip(v), strings.Join(q.at.id.types, "/"), strings.Join(known, ", "))
}

// checkQuery refuses parameters that would be ignored.
func (q *request) checkQuery() *apiError {
	allowed := append(strings.Fields(q.op.query), "api-version", "$skiptoken", "t")
	for _, name := range sortedKeys(q.query) {
		if !slices.Contains(allowed, name) {
			return errf("InvalidQueryParameter", "The query parameter '%s' is not simulated for %s.", clip(name), q.op.name)
		}
	}
	return nil
}
