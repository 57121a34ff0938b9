package aws

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
)

var databaseRE = regexp.MustCompile(`^[a-z](-?[a-z0-9])*$`)

func (w *world) loadDatabase(s *site, d *Database, now time.Time) (err error) {
	if !databaseRE.MatchString(d.ID) || len(d.ID) > 63 || s.databases[d.ID] != nil {
		return fmt.Errorf("database %q: no identifier of RDS, or given twice", d.ID)
	}
	if d.Resource == "" {
		d.Resource = "db-" + strings.ToUpper(digest(s.account, s.region, d.ID)[:26])
	}
	d.Engine, d.State = cmp.Or(d.Engine, "postgres"), cmp.Or(d.State, "available")
	if len(d.Groups) == 0 || len(d.Groups) > s.limits().GroupsPerDatabase {
		return fmt.Errorf("database %s: %d groups; at least 1 and at most %d", d.ID, len(d.Groups), s.limits().GroupsPerDatabase)
	}
	d.vpc, d.Interfaces, err = w.loadService(s, d.ID, "amazon-rds", "RDSNetworkInterface", d.Subnets, d.Groups, false, d.Interfaces)
	if err != nil {
		return fmt.Errorf("database %w", err)
	}
	if d.State == "modifying" {
		d.due = now.Add(w.settle)
		w.wake(d.due)
	}
	s.databases[d.ID] = d
	return checkTags(d.ID, d.Tags)
}

// finish brings the groups of a change that is under way.
func (s *site) finish(d *Database) {
	groups := slices.DeleteFunc(d.Pending, func(id string) bool { return s.groups[id] == nil })
	if len(groups) > 0 {
		d.Groups = groups
		for _, n := range d.Interfaces {
			s.attach(n, slices.Clone(groups))
		}
	}
	d.State, d.Pending, d.due = "available", nil, time.Time{}
}

// endpoint is the DNS name of a database.
func (s *site) endpoint(d *Database) string {
	return d.ID + "." + digest(s.account, s.region)[:12] + "." + s.region + ".rds.amazonaws.com"
}

var databasePages = paging{20, 100, 100}

func describeDatabases(q *request) ([]elem, error) {
	all := sortedValues(q.s.databases)
	if id := strings.ToLower(q.p.str("DBInstanceIdentifier")); id != "" {
		d := q.s.databases[id]
		if d == nil {
			return nil, noDatabase(id)
		}
		all = []*Database{d}
	}
	for _, f := range q.p.within("Filters").structs("Filter") {
		f.allow("Name", "Values")
		get := map[string]func(*Database) string{
			"db-instance-id":  func(d *Database) string { return d.ID },
			"db-cluster-id":   func(d *Database) string { return d.Cluster },
			"dbi-resource-id": func(d *Database) string { return d.Resource },
			"engine":          func(d *Database) string { return d.Engine },
		}[f.str("Name")]
		if get == nil {
			return nil, invalid("Unrecognized filter name: %s", f.str("Name"))
		}
		values := f.within("Values").list("Value")
		all = slices.DeleteFunc(all, func(d *Database) bool { return !slices.Contains(values, get(d)) })
	}
	all, marker, err := cutBy(q, all, func(d *Database) string { return d.ID }, databasePages, "MaxRecords", "Marker")
	if err != nil {
		return nil, err
	}
	return []elem{named("DBInstances", "DBInstance", all, q.databaseXML), opt("Marker", marker)}, nil
}

func noDatabase(id string) error {
	return errf("DBInstanceNotFound", "DBInstance %s not found.", id)
}

func (q *request) databaseXML(d *Database) []elem {
	var groups [][2]string
	for _, id := range d.Groups {
		state := "active"
		if len(d.Pending) > 0 && !slices.Contains(d.Pending, id) {
			state = "removing"
		}
		groups = append(groups, [2]string{id, state})
	}
	for _, id := range d.Pending {
		if !slices.Contains(d.Groups, id) {
			groups = append(groups, [2]string{id, "adding"})
		}
	}
	e := []elem{
		tx("DBInstanceIdentifier", d.ID), tx("DbiResourceId", d.Resource), tx("DBInstanceArn", arn("rds", q.key, "db:"+d.ID)),
		tx("DBInstanceClass", "db.t3.medium"), tx("Engine", d.Engine), tx("DBInstanceStatus", d.State), boolean("MultiAZ", len(d.Subnets) > 1),
		named("VpcSecurityGroups", "VpcSecurityGroupMembership", groups, func(g [2]string) []elem {
			return []elem{tx("VpcSecurityGroupId", g[0]), tx("Status", g[1])}
		}),
		el("DBSubnetGroup", tx("DBSubnetGroupName", "default"), tx("VpcId", d.vpc), tx("SubnetGroupStatus", "Complete"),
			named("Subnets", "Subnet", d.Subnets, func(id string) []elem {
				return []elem{tx("SubnetIdentifier", id), el("SubnetAvailabilityZone", tx("Name", q.s.subnets[id].Zone)), tx("SubnetStatus", "Active")}
			})),
		opt("DBClusterIdentifier", d.Cluster), tagMembers("TagList", "Tag", d.Tags),
	}
	if d.State != "creating" {
		e = append(e, el("Endpoint", tx("Address", q.s.endpoint(d)), integer("Port", 5432)))
	}
	return e
}

// modifyDatabase replaces the groups. RDS does it in its own time, and takes no other change meanwhile.
func modifyDatabase(q *request) ([]elem, error) {
	d := q.s.databases[strings.ToLower(q.p.str("DBInstanceIdentifier"))]
	if d == nil {
		return nil, noDatabase(q.p.str("DBInstanceIdentifier"))
	}
	groups := q.p.within("VpcSecurityGroupIds").list("VpcSecurityGroupId")
	q.p.flag("ApplyImmediately") // groups are always replaced as soon as possible
	if q.p.bad != nil {
		return nil, q.p.bad
	}
	switch {
	case d.State != "available":
		return nil, errf("InvalidDBInstanceState", "Database instance is not in available state.")
	case d.Cluster != "":
		return nil, errf("InvalidParameterCombination", "The specified DB Instance is a member of a cluster. Modify the vpc security group for the DB Cluster using the ModifyDbCluster API")
	}
	if err := q.checkServiceGroups(groups, d.vpc, q.s.limits().GroupsPerDatabase, "InvalidParameterValue"); err != nil {
		return nil, err
	}
	d.State, d.Pending = "modifying", groups
	if d.due = q.now.Add(q.w.settle); q.w.settle <= 0 {
		q.s.finish(d)
	}
	q.w.wake(d.due)
	return []elem{el("DBInstance", q.databaseXML(d)...)}, nil
}

// databaseNamed finds the database of an ARN.
func (q *request) databaseNamed(name string) (*Database, error) {
	id, ok := strings.CutPrefix(name, arn("rds", q.key, "db:"))
	if !ok {
		return nil, invalid("The specified resource name does not match an RDS resource in this region.")
	}
	if d := q.s.databases[id]; d != nil {
		return d, nil
	}
	return nil, noDatabase(id)
}

func listDatabaseTags(q *request) ([]elem, error) {
	d, err := q.databaseNamed(q.p.str("ResourceName"))
	if err != nil {
		return nil, err
	}
	return []elem{tagMembers("TagList", "Tag", d.Tags)}, nil
}

func addDatabaseTags(q *request) ([]elem, error) {
	d, err := q.databaseNamed(q.p.str("ResourceName"))
	if err != nil {
		return nil, err
	}
	tags, err := addServiceTags(d.Tags, q.p.within("Tags").structs("Tag"))
	if err == nil && q.p.bad != nil {
		err = q.p.bad
	}
	if err == nil {
		d.Tags = tags
	}
	return nil, err
}

func removeDatabaseTags(q *request) ([]elem, error) {
	d, err := q.databaseNamed(q.p.str("ResourceName"))
	if err != nil {
		return nil, err
	}
	keys := q.p.within("TagKeys").list("member")
	if q.p.bad != nil {
		return nil, q.p.bad
	}
	for _, k := range keys {
		delete(d.Tags, k)
	}
	return nil, nil
}

// FailOver makes another interface of a database the one that serves, as RDS does when a zone fails.
// It returns the new address.
func (c *Cloud) FailOver(account, region, id string) (addr netip.Addr, err error) {
	c.write(func() bool {
		s := c.w.sites[siteKey{account, region}]
		if s == nil || s.databases[id] == nil || len(s.databases[id].Interfaces) < 2 {
			err = fmt.Errorf("fail over %s: no such database, or it has no other interface", id)
			return false
		}
		ns := s.databases[id].Interfaces
		s.databases[id].Interfaces = append(slices.Clone(ns[1:]), ns[0])
		addr = ns[1].PrivateIPs[0]
		return true
	})
	return addr, err
}
