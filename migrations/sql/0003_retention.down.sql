drop index notes_expiry;
alter table deliveries add constraint deliveries_address_id_fkey foreign key (address_id) references addresses (id);
alter table runs add constraint runs_lane_id_fkey foreign key (lane_id) references lanes (id);
alter table addresses drop column used_on;
drop table leases;
